import numpy as np
import pytest
import torch
from PIL import Image

from hypersphere.cli.main import main
from hypersphere.recognition import load_features, load_model, save_model


@pytest.fixture
def files(models, tmp_path):
    save_model(
        models.tiny(3, 5),
        tmp_path / "model.safetensors",
        constructor="tiny",
        arguments={"channels": 3, "dim": 5},
        preprocessing={"size": (9, 7)},
    )
    for i in range(3):
        (tmp_path / "images").mkdir(exist_ok=True)
        pixels = np.random.default_rng(i).integers(0, 256, (12, 10, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{i}.png")
    return tmp_path


def test_writes_the_features_of_a_folder(files, capsys):
    output = files / "features.safetensors"
    assert (
        main(["embed", str(files / "model.safetensors"), str(files / "images"), "-o", str(output), "--batch", "2"]) == 0
    )
    features = load_features(output)
    assert features.features.shape == (3, 5)
    assert [f.rsplit("/", 1)[1] for f in features.files] == ["0.png", "1.png", "2.png"]
    assert features.fingerprint == load_model(files / "model.safetensors").fingerprint
    assert capsys.readouterr().out == f"3 features of dimension 5 of model {features.fingerprint[:12]} in {output}\n"
    assert torch.isfinite(features.features).all()


@pytest.mark.parametrize(
    ("model", "image", "output", "message"),
    [
        ("missing", "images", "f", "there is no file"),
        ("images/0.png", "images", "f", "is not a safetensors file"),
        ("model.safetensors", "missing.png", "f", "there is no file or folder"),
        ("model.safetensors", "model.safetensors", "f", "cannot be read as an image"),
        ("model.safetensors", "images", "no/folder/f", "there is no folder"),
    ],
)
def test_a_user_error_is_one_line(files, capsys, model, image, output, message):
    assert main(["embed", str(files / model), str(files / image), "-o", str(files / output)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("hypersphere embed: ")
    assert message in error
    assert error.count("\n") == 1
    assert not (files / output).exists()


def test_the_output_is_required(files, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["embed", str(files / "model.safetensors"), str(files / "images")])
    assert stop.value.code == 2
    assert "--output" in capsys.readouterr().err
