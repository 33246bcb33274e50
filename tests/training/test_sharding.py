"""A head that is divided among the processes of a run trains as a whole one, and the run goes on as one process."""

import json
import pathlib

import pytest
import torch
from torch import nn

from hypersphere.config import call
from hypersphere.objectives import ArcFace, RowSGD
from hypersphere.training import Experiment, to_json
from hypersphere.training.sharding import shard_heads, unshard_heads, whole_states
from tests.training.runs import small
from tests.training.test_distributed import TOLERANCE, launch, losses


@pytest.mark.slow
def test_two_processes_with_a_divided_and_drawn_head_give_the_losses_of_one(tmp_path: pathlib.Path) -> None:
    head = call(ArcFace, parallel=True, sample=0.5, sub_centers=2, scale=10.0)
    optimizer = call(RowSGD, lr=0.05, momentum=0.9, weight_decay=5e-4)
    options = {"evaluate_every": 12, "checkpoint_every": 6, "pictures": False}
    config = small(steps=12, model__norm="none", head=head, optimizer=optimizer, energy=None, **options)
    Experiment(config, tmp_path / "one").run()
    (tmp_path / "config.json").write_text(to_json(config))
    launch(tmp_path, 2, "two")
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), rel=TOLERANCE)
    found = [json.loads((tmp_path / name / "metrics.json").read_text())["accuracy"] for name in ("one", "two")]
    assert found[1] == pytest.approx(found[0], abs=1.0)
    launch(tmp_path, 2, "elastic", stop=6)
    Experiment(config, tmp_path / "elastic").run()
    assert losses(tmp_path / "elastic") == pytest.approx(losses(tmp_path / "one"), rel=TOLERANCE)


def test_one_process_has_nothing_to_divide() -> None:
    net = nn.Sequential(ArcFace(4, 5, parallel=True))
    shard_heads(net, torch.device("cpu"), 1, None)
    unshard_heads(net)
    assert net[0].shards is None
    states = {"task": net.state_dict()}
    assert whole_states(net, states) is states


def test_a_divided_head_cannot_be_clipped() -> None:
    with pytest.raises(ValueError, match="clip must be none"):
        shard_heads(nn.Sequential(ArcFace(4, 5, parallel=True)), torch.device("cpu"), 2, 1.0)
