import numpy as np
import pytest
import torch
from PIL import Image

from hypersphere.recognition import EmbeddingModel, Features, Preprocessing, embed, load_features, save_features
from hypersphere.recognition.embedding import image_files, read_image


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
def model(models):
    return EmbeddingModel(models.tiny(1, 5), Preprocessing((9, 7), 1))


def test_files_and_folders_in_order(folder):
    names = [str(f.relative_to(folder)) for f in image_files([folder / "b" / "2.png", folder])]
    assert names == ["b/2.png", "a/deep/y.png", "a/x.bmp", "b/1.PNG", "b/2.png"]
    (folder.parent / "empty").mkdir()
    with pytest.raises(ValueError, match="there is no image in the folder"):
        image_files([folder.parent / "empty"])
    with pytest.raises(ValueError, match="there is no file or folder"):
        image_files([folder / "missing.png"])


@pytest.mark.parametrize("channels", [1, 3])
def test_pixels_come_as_they_are(tmp_path, channels):
    pixels = np.random.default_rng(1).integers(0, 256, (6, 5, 3), dtype=np.uint8)
    pixels = pixels if channels == 3 else pixels[..., 0]
    image = read_image(write(tmp_path / "i.png", pixels), Preprocessing((6, 5), channels))
    assert image.shape == (channels, 6, 5)
    expected = torch.from_numpy(pixels.reshape(6, 5, channels)).movedim(-1, 0) / 255
    torch.testing.assert_close(image, expected)


def test_other_sizes_modes_and_rotations_are_brought_to_the_models(tmp_path):
    pixels = np.zeros((8, 4, 4), dtype=np.uint8)
    pixels[:4] = 255
    assert read_image(write(tmp_path / "rgba.png", pixels), Preprocessing((4, 2), 3)).shape == (3, 4, 2)
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: the top is on the right
    turned = read_image(write(tmp_path / "t.jpg", pixels[..., 0], exif=exif), Preprocessing((4, 8), 1))
    assert turned[0, :, 6:].mean() > 0.9 > 0.1 > turned[0, :, :2].mean()


def test_features_do_not_depend_on_batches(model, folder):
    one, all_at_once = embed(model, [folder], batch=1), embed(model, [folder])
    torch.testing.assert_close(one.features, all_at_once.features)
    assert one.files == all_at_once.files
    assert len(one.files) == len(one.features) == 4
    alone = model(read_image(one.files[2], model.preprocessing)[None])
    torch.testing.assert_close(one.features[2:3], alone)
    assert one.fingerprint == model.fingerprint


def test_a_file_of_features_comes_back(model, folder, tmp_path):
    features = embed(model, [folder])
    save_features(features, tmp_path / "f.safetensors")
    again = load_features(tmp_path / "f.safetensors")
    assert isinstance(again, Features)
    assert torch.equal(again.features, features.features)
    assert again[1:] == features[1:]
    assert [p.name for p in tmp_path.iterdir()] == ["images", "f.safetensors"] or len(list(tmp_path.iterdir())) == 2


def test_refuses(model, folder, tmp_path):
    for name, content in (("text.png", b"no image"), ("cut.png", (folder / "b" / "2.png").read_bytes()[:60])):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"{name} cannot be read as an image"):
            embed(model, [tmp_path / name])
    with pytest.raises(ValueError, match="batch must be an integer ≥ 1"):
        embed(model, [folder], batch=0)
    with pytest.raises(ValueError, match="at least one image"):
        embed(model, [])
    import safetensors.torch

    safetensors.torch.save_file({"features": torch.ones(1, 1)}, tmp_path / "x")
    with pytest.raises(ValueError, match="is not a file of features"):
        load_features(tmp_path / "x")
