import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image

from hypersphere.data import CorruptDataError
from hypersphere.recognition import Features, embed, load_features, save_features
from hypersphere.recognition.embedding import FORMAT, image_files

from .small_networks import COLUMNS, ROWS, small_embedder


def write(path, pixels, **options):
    path.parent.mkdir(exist_ok=True, parents=True)
    Image.fromarray(pixels).save(path, **options)
    return path


@pytest.fixture
def folder(tmp_path):
    generator = np.random.default_rng(0)
    for name in ("b/2.png", "b/1.PNG", "a/x.bmp", "a/deep/y.png"):
        write(tmp_path / "images" / name, generator.integers(0, 256, (9, 7), dtype=np.uint8))
    (tmp_path / "images" / "a" / "notes.txt").write_text("no image")
    return tmp_path / "images"


@pytest.fixture
def embedder():
    return small_embedder()


def test_files_and_folders_in_order(folder):
    names = [str(f.relative_to(folder)) for f in image_files([folder / "b" / "2.png", folder])]
    assert names == ["b/2.png", "a/deep/y.png", "a/x.bmp", "b/1.PNG", "b/2.png"]
    (folder.parent / "empty").mkdir()
    with pytest.raises(ValueError, match="there is no image in the folder"):
        image_files([folder.parent / "empty"])
    with pytest.raises(ValueError, match="there is no file or folder"):
        image_files([folder / "missing.png"])


def test_pixels_come_as_they_are(embedder, tmp_path):
    pixels = np.random.default_rng(1).integers(0, 256, (ROWS, COLUMNS), dtype=np.uint8)
    features = embed(embedder, [write(tmp_path / "i.png", pixels)]).features
    x = (torch.from_numpy(pixels).float()[None, None] - 127.5) / 128
    torch.testing.assert_close(features, embedder.network(x).detach())


def test_other_sizes_modes_and_rotations_are_brought_to_the_embedders(embedder, tmp_path):
    pixels = np.zeros((2 * ROWS, 2 * COLUMNS, 4), dtype=np.uint8)
    pixels[:ROWS] = 255
    upright = write(tmp_path / "rgba.png", pixels)
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: the top of the scene is on the right of the stored picture
    turned = write(tmp_path / "turned.png", np.rot90(pixels[..., 0]), exif=exif)
    flat = write(tmp_path / "flat.png", pixels[..., 0])
    features = embed(embedder, [flat, turned, upright]).features
    assert torch.equal(features[0], features[1])
    assert features.shape == (3, 5)


def test_features_do_not_depend_on_batches(embedder, folder):
    one, all_at_once = embed(embedder, [folder], batch=1), embed(embedder, [folder])
    torch.testing.assert_close(one.features, all_at_once.features)
    assert one.files == all_at_once.files
    assert len(one.files) == len(one.features) == 4
    assert torch.equal(one.features[2:3], embedder(one.files[2]))
    assert one.fingerprint == embedder.fingerprint
    assert one.skipped == {}


def test_a_file_of_features_comes_back(embedder, folder, tmp_path):
    features = embed(embedder, [folder])
    save_features(features, tmp_path / "f.safetensors")
    again = load_features(tmp_path / "f.safetensors")
    assert isinstance(again, Features)
    assert torch.equal(again.features, features.features)
    assert again[1:] == features[1:]
    save_features(features, tmp_path / "f.npy")
    assert np.array_equal(np.load(tmp_path / "f.npy"), features.features.numpy())
    assert {path.name for path in tmp_path.iterdir()} == {"images", "f.safetensors", "f.npy"}


def test_what_cannot_be_read_is_named(embedder, folder, tmp_path):
    whole = folder / "b" / "2.png"
    contents = {"text.png": b"no image", "cut.png": whole.read_bytes()[:60]}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(CorruptDataError, match=name):
            embed(embedder, [tmp_path / name])
    paths = [tmp_path / "text.png", whole, tmp_path / "cut.png"]
    features = embed(embedder, paths, skip_errors=True)
    assert features.files == [str(whole)]
    assert list(features.skipped) == [str(tmp_path / name) for name in contents]
    assert all(str(file) in reason for file, reason in features.skipped.items())
    assert torch.equal(features.features, embedder(whole))
    with pytest.raises(ValueError, match="none of 1 images could be read"):
        embed(embedder, paths[:1], skip_errors=True)


def test_refuses(embedder, folder, tmp_path):
    with pytest.raises(ValueError, match="batch must be an integer ≥ 1"):
        embed(embedder, [folder], batch=0)
    with pytest.raises(ValueError, match="at least one image"):
        embed(embedder, [])
    safetensors.torch.save_file({"features": torch.ones(1, 1)}, tmp_path / "x")
    with pytest.raises(ValueError, match=f"is not a file of format {FORMAT}, got format none"):
        load_features(tmp_path / "x")
    safetensors.torch.save_file({"features": torch.ones(1, 1)}, tmp_path / "x", {FORMAT: '{"content": {}}'})
    with pytest.raises(ValueError, match="is damaged: its checksum does not fit its content"):
        load_features(tmp_path / "x")
