import pathlib

import pytest
import torch
from safetensors.torch import load_file

from hypersphere.orthogonal import overparameterize
from hypersphere.training import Experiment, call
from hypersphere.training.results import get_unit, merge_weights
from tests.training.runs import small


def run(folder: pathlib.Path, **changes: object) -> Experiment:
    experiment = Experiment(small(**{"steps": 2, "evaluate_every": 1, "backbone.feature_dim": 2, **changes}), folder)
    experiment.run()
    return experiment


def test_the_card_says_what_was_trained_and_how_well(tmp_path: pathlib.Path) -> None:
    run(tmp_path)
    card = (tmp_path / "README.md").read_text()
    for text in ("| task | Classification |", "| head | SphereFace |", "| classes | 10 |", "| accuracy | "):
        assert text in card
    assert "![features](pictures/features.png)" in card
    assert "`embedder.safetensors` computes the features of image files." in card
    row = next(line for line in card.splitlines() if line.startswith("| accuracy |"))
    assert row.endswith(" % |")


def test_the_models_keys_are_those_of_the_plain_network(tmp_path: pathlib.Path) -> None:
    run(tmp_path / "plain", energy=None, pictures=False)
    turned = run(tmp_path / "turned", energy=None, pictures=False, orthogonal=call(overparameterize, method="cayley"))
    tensors = load_file(tmp_path / "turned" / "model.safetensors")
    assert tensors.keys() == load_file(tmp_path / "plain" / "model.safetensors").keys()
    weight = turned.task.model.body.conv1[0].conv.weight
    torch.testing.assert_close(tensors["body.conv1.0.conv.weight"], weight)
    assert merge_weights(turned.task).keys() == tensors.keys()


@pytest.mark.parametrize(
    ("measure", "expected"),
    [("accuracy", " %"), ("worst_class_error", " %"), ("intra_angle", " rad"), ("lambda", ""), ("feature_norm", "")],
)
def test_units(measure: str, expected: str) -> None:
    assert get_unit(measure) == expected
