import gzip

import numpy as np
import pytest
import torch

from hypersphere.data import MNIST, CorruptDataError, FashionMNIST, MissingDataError

from .contracts import ReaderContract
from .files import digest, idx, random, write

IMAGES, LABELS = random(7, 28, 28), np.array([3, 1, 4, 1, 5, 9, 2], np.uint8)


class TestMNIST(ReaderContract):
    name = "mnist"
    reader = MNIST

    def make(self, root):
        for split in ("train", "t10k"):
            write(
                root / self.name, {f"{split}-images-idx3-ubyte": idx(IMAGES), f"{split}-labels-idx1-ubyte": idx(LABELS)}
            )

    def read(self, root):
        return self.reader(root)

    @pytest.mark.parametrize("train", [True, False])
    def test_returns_the_written_data(self, tmp_path, train):
        self.make(tmp_path)
        dataset = self.reader(tmp_path, train=train)
        assert torch.equal(dataset.data, torch.from_numpy(IMAGES)[:, None])
        assert dataset.labels.tolist() == LABELS.tolist()

    def test_the_layout_of_torchvision_is_found(self, tmp_path):
        self.make(tmp_path / "elsewhere")
        (tmp_path / self.reader.__name__).mkdir()
        (tmp_path / "elsewhere" / self.name).rename(tmp_path / self.reader.__name__ / "raw")
        assert len(self.read(tmp_path)) == 7


class TestFashionMNIST(TestMNIST):
    """The same files, compressed with gzip."""

    name = "fashion_mnist"
    reader = FashionMNIST

    def make(self, root):
        for split in ("train", "t10k"):
            files = {f"{split}-images-idx3-ubyte.gz": idx(IMAGES), f"{split}-labels-idx1-ubyte.gz": idx(LABELS)}
            write(root / self.name, {name: gzip.compress(content) for name, content in files.items()})


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train-images-idx3-ubyte", idx(IMAGES[0]), "magic number 0x00000802, expected 0x00000803"),
        ("train-images-idx3-ubyte", b"", "magic number 0x, expected"),
        ("train-images-idx3-ubyte", idx(IMAGES)[:9], "9 bytes, expected a header of 16"),
        ("train-images-idx3-ubyte", idx(IMAGES) + b"!", r"5505 bytes, expected 5504 for sizes \(7, 28, 28\)"),
        ("train-images-idx3-ubyte", b"\0\0\x08\x03" + b"\xff" * 12, "16 bytes, expected"),
        ("train-images-idx3-ubyte", idx(IMAGES[:, :27]), "expected 28×28"),
        ("train-labels-idx1-ubyte", idx(LABELS[:-1]), "6 labels, expected one for each of 7 images"),
        ("train-labels-idx1-ubyte", idx(LABELS + 1), "label 10, expected labels 0 … 9"),
    ],
)
def test_errors_describe_the_problem(tmp_path, name, content, message):
    TestMNIST().make(tmp_path)
    (tmp_path / "mnist" / name).write_bytes(content)
    with pytest.raises(
        CorruptDataError, match=f"{name}: found .*{message}.*; `hypersphere data get mnist --force` downloads it again"
    ):
        MNIST(tmp_path)


def test_a_missing_file_is_named(tmp_path):
    TestMNIST().make(tmp_path)
    (tmp_path / "mnist" / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(
        MissingDataError,
        match=r"mnist holds no train-labels-idx1-ubyte or train-labels-idx1-ubyte\.gz; `hypersphere data get",
    ):
        MNIST(tmp_path)


@pytest.mark.parametrize(
    ("reader", "train", "data", "labels"),
    [
        (MNIST, True, "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757", "e474323ac02fc156"),
        (MNIST, False, "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161", "2fd8de6bdb8d1178"),
        (FashionMNIST, True, "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012", "e3245b63f7c40d1c"),
        (FashionMNIST, False, "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a", "d51d859896c55775"),
    ],
)
def test_the_real_set(real, reader, train, data, labels):
    dataset = reader(real(reader.name), train=train)
    assert dataset.data.shape == (60000 if train else 10000, 1, 28, 28)
    assert digest(dataset.data) == data
    assert digest(dataset.labels).startswith(labels)
    balanced = torch.bincount(dataset.labels).unique().tolist() == [len(dataset) // 10]
    assert balanced == (reader is FashionMNIST)
