"""Parts of a config that do not fit together are one sentence, before anything is left behind."""

import pytest
import torch

from hypersphere.training import Experiment, call
from hypersphere.training.first_use import fitting_together
from tests.training.runs import small


@pytest.mark.parametrize(
    "error", [TypeError("no"), KeyError("no"), AttributeError("no"), RuntimeError("shapes"), ZeroDivisionError()]
)
def test_what_parts_raise_is_a_value_error(error):
    with pytest.raises(ValueError, match="the parts of this run do not fit together") as caught, fitting_together():
        raise error
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    "error", [RuntimeError("gloo: connection closed"), RuntimeError("can't allocate memory"), MemoryError()]
)
def test_what_is_no_misfit_passes(error):
    with pytest.raises(type(error)) as caught, fitting_together():
        raise error
    assert caught.value is error


def test_a_network_of_graphs_on_images_leaves_no_folder(tmp_path):
    from hypersphere.models import gcn

    config = small(model=call(gcn), energy=None, steps=1, pictures=False)
    with pytest.raises(ValueError, match="do not fit together"):
        Experiment(config, tmp_path / "runs" / "x").run()
    assert not (tmp_path / "runs").exists()


def test_memory_that_is_not_there_is_not_called_a_misfit():
    with pytest.raises(RuntimeError), fitting_together():
        torch.empty(1 << 60)
