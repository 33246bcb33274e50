import pathlib
from typing import Any

import pytest
import torch
from PIL import Image
from torch import nn

from hypersphere import models
from hypersphere.config import call
from hypersphere.data import Digits
from hypersphere.objectives import Softmax
from hypersphere.operators import Operator, magnitudes
from hypersphere.orthogonal import overparameterize
from hypersphere.recognition import Embedder, embed
from hypersphere.training import Classification, Experiment
from hypersphere.training.tasks.classification import get_file_preprocessing, get_network_call
from tests.training.own import Net, Squares
from tests.training.runs import small


def trained(folder: pathlib.Path, **changes: Any) -> Experiment:
    plain = {"steps": 2, "evaluate_every": 2, "energy": None, "pictures": False}
    experiment = Experiment(small(**{**plain, **changes}), folder)
    experiment.run()
    return experiment


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"channels": 3, "backbone.norm": "none", "backbone.activation": "prelu"},
        {"normalize": "faces", "orthogonal": call(overparameterize, method="cayley")},
        {"backbone": call(models.sphereface4, norm="batch", feature_dim=4, width=0.125), "normalize": "unit"},
        {"backbone.operator": call(Operator, magnitude=call(magnitudes.Tanh)), "crop": 6},
    ],
    ids=["plain", "colour", "merged", "sphereface", "operators"],
)
def test_embeds_images_as_training_did(changes: dict[str, Any], tmp_path: pathlib.Path) -> None:
    task = trained(tmp_path, **changes).task.eval()
    embedder = Embedder.load(tmp_path / "embedder.safetensors")
    with torch.no_grad():
        expected = task.embed(task.measured_samples)
    pixels = task.measured_samples.batch(torch.arange(len(expected)))[0]
    torch.testing.assert_close(embedder(pixels), expected, rtol=1e-4, atol=1e-4)


def test_files_are_prepared_as_in_training(tmp_path: pathlib.Path) -> None:
    """The embedder crops and resizes an image file exactly as training does."""
    task = trained(tmp_path / "run", crop=6, size=8).task.eval()
    Image.fromarray(Digits(train=False).data[0, 0].numpy()).save(tmp_path / "digit.png")
    features = embed(Embedder.load(tmp_path / "run" / "embedder.safetensors"), [tmp_path / "digit.png"]).features
    with torch.no_grad():
        torch.testing.assert_close(features, task.embed(task.measured_samples)[:1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"normalize": "pixel_mean"}, "an embedder file cannot store a normalization by MeanImage"),
    ],
)
def test_what_a_file_cannot_say_is_not_written_and_the_run_says_so(
    changes: dict[str, Any], reason: str, tmp_path: pathlib.Path
) -> None:
    trained(tmp_path, **changes)
    assert (tmp_path / "model.safetensors").exists()
    assert not (tmp_path / "embedder.safetensors").exists()
    assert f"There is no embedder: {reason}" in (tmp_path / "README.md").read_text()


def test_how_ones_own_network_is_built_must_be_known() -> None:
    class Local(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.flatten(1)

    def reason(model: Any) -> Any:
        return get_network_call(Classification(model, call(Softmax), Squares(10)))

    assert reason(Net()) == call(Net)
    assert reason(call(Net, dim=4)) == call(Net, dim=4)
    assert "cannot be imported by name; define it in a module" in reason(Local())
    assert reason(nn.Conv2d(3, 4, 3)) == (
        "the arguments that built Conv2d are not known; give the task model=call(Conv2d, …)"
    )


def test_what_is_not_an_image_has_no_preprocessing() -> None:
    task = Classification(Net(), call(Softmax), Squares(10))
    assert get_file_preprocessing(task, torch.zeros(2, 5)) == "inputs of shape (5,) are not images"
    assert "returns integer pixels" in get_file_preprocessing(task, torch.zeros(1, 3, 4, 4, dtype=torch.uint8))
    found = get_file_preprocessing(task, torch.zeros(1, 3, 4, 6))
    assert (found.size, found.channels) == ((4, 6), 3)
