import numpy as np
import pytest
import torch

from hypersphere.data import CorruptDataError, ImageFolder, MissingDataError

from .files import encoded, random, write

FILES = {
    "dog/2.png": encoded(random(8, 8, 3, seed=1)),
    "cat/deep/1.JPG": encoded(random(8, 8, 3, seed=2), "JPEG"),
    "cat/0.png": encoded(random(8, 8, seed=3)),
    "cat/notes.txt": b"no image",
    "top.png": encoded(random(8, 8)),
}


def test_classes_and_images_are_sorted(tmp_path):
    write(tmp_path, FILES)
    dataset = ImageFolder(tmp_path)
    assert dataset.classes == ("cat", "dog")
    assert dataset.names == ("cat/0.png", "cat/deep/1.JPG", "dog/2.png")
    assert dataset.labels.tolist() == [0, 0, 1]
    assert np.array_equal(dataset[2][0].permute(1, 2, 0).numpy(), random(8, 8, 3, seed=1))
    assert dataset[0][0].shape == (3, 8, 8)


def test_decodes_to_one_size(tmp_path):
    write(tmp_path, {**FILES, "dog/wide.png": encoded(random(6, 20, 3))})
    dataset = ImageFolder(tmp_path, size=5, gray=True)
    memory = dataset.in_memory()
    assert memory.data.shape == (4, 1, 5, 5)
    assert torch.equal(memory.data[3], dataset[3][0])


def test_says_what_is_wrong(tmp_path):
    with pytest.raises(
        MissingDataError, match="nowhere is not there; expected a folder that holds one folder of images per class"
    ):
        ImageFolder(tmp_path / "nowhere")
    with pytest.raises(MissingDataError, match="holds no <class>/…/"):
        ImageFolder(tmp_path)
    write(tmp_path, {"a/bad.png": b"\x89PNG\r\n\x1a\n"})
    with pytest.raises(CorruptDataError, match=r"bad\.png: found 8 bytes that do not decode"):
        ImageFolder(tmp_path)[0]


def test_nothing_outside_is_read(tmp_path):
    write(tmp_path, {"outside.png": FILES["dog/2.png"]})
    write(tmp_path / "root", FILES)
    dataset = ImageFolder(tmp_path / "root")
    (tmp_path / "root" / "cat" / "0.png").unlink()
    (tmp_path / "root" / "cat" / "0.png").symlink_to(tmp_path / "outside.png")
    for read in (lambda: dataset[0], lambda: ImageFolder(tmp_path / "root")):
        with pytest.raises(CorruptDataError, match="link out of the data root"):
            read()
