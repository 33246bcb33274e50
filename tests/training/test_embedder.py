import pathlib
from typing import Any

import pytest
import torch
from PIL import Image

from hypersphere.data import Digits
from hypersphere.experiments import Experiment
from hypersphere.recognition import embed, load_model
from tests.training.runs import small


def trained(folder: pathlib.Path, **changes: Any) -> Experiment:
    experiment = Experiment(small(steps=2, evaluate_every=2, energy__name="none", **changes), folder)
    experiment.run()
    return experiment


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"data__channels": 3, "model__norm": "none", "model__activation": "prelu"},
        {"data__normalize": "faces", "orthogonal__method": "cayley"},
        {
            "model__name": "sphereface4",
            "model__table": None,
            "model__norm": "batch",
            "model__feature_dim": 4,
            "data__normalize": "unit",
        },
    ],
    ids=["plain", "colour", "merged", "sphereface"],
)
def test_embeds_images_as_training_did(changes: dict[str, Any], tmp_path: pathlib.Path) -> None:
    experiment = trained(tmp_path, **changes)
    task = experiment.task.eval()
    model = load_model(tmp_path / "embedder.safetensors")
    with torch.no_grad():
        expected = task.embed(task.measured)
    torch.testing.assert_close(model(task.measured.data.float() / 255), expected, rtol=1e-4, atol=1e-4)


def test_the_embed_command_takes_it(tmp_path: pathlib.Path) -> None:
    task = trained(tmp_path / "run").task.eval()
    Image.fromarray(Digits(train=False).data[0, 0].numpy()).save(tmp_path / "digit.png")
    features = embed(load_model(tmp_path / "run" / "embedder.safetensors"), [tmp_path / "digit.png"]).features
    with torch.no_grad():
        torch.testing.assert_close(features, task.embed(task.measured)[:1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "changes",
    [
        {"model__operator__magnitude": "Sphere"},
        {"data__normalize": "pixel_mean"},
        {"model__name": "mlp", "model__table": None},
    ],
)
def test_what_a_file_cannot_say_is_not_written(changes: dict[str, Any], tmp_path: pathlib.Path) -> None:
    trained(tmp_path, **changes)
    assert (tmp_path / "model.safetensors").exists()
    assert not (tmp_path / "embedder.safetensors").exists()
