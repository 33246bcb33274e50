import numpy as np
import pytest
import torch
from PIL import Image

from hypersphere.cli.main import main
from hypersphere.config import call
from hypersphere.data import PicturePreprocessing
from hypersphere.recognition import Embedder, load_features
from tests.recognition.small_networks import COLUMNS, ROWS, Tiny, small_embedder


@pytest.fixture
def files(tmp_path):
    small_embedder(channels=3).save(tmp_path / "embedder.safetensors")
    (tmp_path / "images").mkdir()
    for i in range(3):
        pixels = np.random.default_rng(i).integers(0, 256, (12, 10, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{i}.png")
    return tmp_path


def embed(files, output, *options, embedder="embedder.safetensors", images="images"):
    return main(["embed", str(files / embedder), str(files / images), "-o", str(files / output), *options])


def test_writes_the_features_of_a_folder(files, capsys):
    output = files / "features.safetensors"
    assert embed(files, output, "--batch", "2") == 0
    features = load_features(output)
    assert features.features.shape == (3, 5)
    assert [f.rsplit("/", 1)[1] for f in features.files] == ["0.png", "1.png", "2.png"]
    assert features.fingerprint == Embedder.load(files / "embedder.safetensors").fingerprint
    printed = f"3 features of dimension 5 of embedder {features.fingerprint[:12]} in {output}\n"
    assert capsys.readouterr().out == printed
    assert torch.isfinite(features.features).all()
    assert embed(files, "features.npy") == 0
    assert np.allclose(np.load(files / "features.npy"), features.features, atol=1e-6)


def test_files_that_cannot_be_read_are_left_out_and_named(files, capsys):
    (files / "images" / "1.png").write_text("no image")
    assert embed(files, "f.safetensors", "--skip-errors") == 0
    assert capsys.readouterr().err.startswith(f"skipped {files / 'images' / '1.png'}: ")
    assert len(load_features(files / "f.safetensors").files) == 2


def test_ones_own_network_needs_trust(files, capsys):
    Embedder(Tiny(), PicturePreprocessing((ROWS, COLUMNS), 1), call(Tiny)).save(files / "own.safetensors")
    assert embed(files, "f.npy", embedder="own.safetensors") == 1
    assert "code outside hypersphere" in capsys.readouterr().err
    assert embed(files, "f.npy", "--trust", embedder="own.safetensors") == 0


@pytest.mark.parametrize(
    ("embedder", "image", "output", "message"),
    [
        ("missing", "images", "f.npy", "there is no embedder"),
        ("images/0.png", "images", "f.npy", "is not a safetensors file, or is damaged"),
        ("embedder.safetensors", "missing.png", "f.npy", "there is no file"),
        ("embedder.safetensors", "embedder.safetensors", "f.npy", "embedder.safetensors"),
        ("embedder.safetensors", "images", "no/folder/f.npy", "there is no folder"),
        ("embedder.safetensors", "images", "f.txt", "--output must end in .safetensors or .npy, got f.txt"),
    ],
)
def test_a_user_error_is_one_line(files, capsys, embedder, image, output, message):
    assert embed(files, output, embedder=embedder, images=image) == 1
    error = capsys.readouterr().err
    assert error.startswith("hypersphere embed: ")
    assert message in error
    assert error.count("\n") == 1
    assert not (files / output).exists()


def test_the_output_is_required(files, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["embed", str(files / "embedder.safetensors"), str(files / "images")])
    assert stop.value.code == 2
    assert "--output" in capsys.readouterr().err
