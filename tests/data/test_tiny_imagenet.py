import zipfile

import numpy as np
import pytest
import torch

from hypersphere.data import CorruptDataError, TinyImageNet

from .contracts import ReaderContract
from .files import digest, encoded, random, tar, write

IMAGES = np.kron(random(6, 2, 2, 3), np.ones((1, 16, 16, 1), np.uint8))
FILES = {
    "train/n02/images/n02_0.JPEG": encoded(IMAGES[0], "JPEG"),
    "train/n01/images/n01_1.JPEG": encoded(IMAGES[1], "JPEG"),
    "train/n01/images/n01_0.JPEG": encoded(IMAGES[2, :, :, 0], "JPEG"),  # the original set contains some gray images
    "val/images/val_0.JPEG": encoded(IMAGES[3], "JPEG"),
    "val/images/val_1.JPEG": encoded(IMAGES[4], "JPEG"),
    "val/val_annotations.txt": b"val_0.JPEG\tn02\t0\t0\t9\t9\nval_1.JPEG\tn01\t0\t0\t9\t9\n",
    "wnids.txt": b"n02\nn01\n",
    "test/images/test_0.JPEG": encoded(IMAGES[5], "JPEG"),
}


class TestReduced(ReaderContract):
    name = "tiny_imagenet"

    def make(self, root):
        tar(root / "tiny_imagenet_32" / "tiny_imagenet_200_32x32_train_val.tar.xz", FILES)

    def read(self, root):
        return TinyImageNet(root)

    def test_labels_follow_folders_and_annotations(self, tmp_path):
        self.make(tmp_path)
        train, valid = self.read(tmp_path), TinyImageNet(tmp_path, train=False, size=16)
        assert train.classes == ("n01", "n02")
        assert train.labels.tolist() == [0, 0, 1]
        assert valid.labels.tolist() == [1, 0]
        assert (train.data.shape, valid.data.shape) == ((3, 3, 32, 32), (2, 3, 16, 16))
        assert torch.equal(train.data[0, 0], train.data[0, 2])


class TestOriginal(TestReduced):
    def make(self, root):
        (root / "tiny_imagenet").mkdir(parents=True)
        with zipfile.ZipFile(root / "tiny_imagenet" / "tiny-imagenet-200.zip", "w") as archive:
            for name, content in FILES.items():
                archive.writestr(f"tiny-imagenet-200/{name}", content)


class TestUnpacked(TestReduced):
    examples = 25

    def make(self, root):
        write(root / "tiny_imagenet" / "tiny-imagenet-200", FILES)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"wnids.txt": None}, "no wnids.txt"),
        ({"val/val_annotations.txt": None}, "no val_annotations.txt"),
        ({"wnids.txt": b"n01\n"}, "val_0.JPEG without a class"),
        ({"val/val_annotations.txt": b"val_0.JPEG\tn02\n"}, "val_1.JPEG without a class"),
        (
            {"val/images/val_0.JPEG": encoded(IMAGES[0][:16], "JPEG")},
            r"val_0.JPEG in images of sizes \[\(16, 32\), \(32, 32\)\]",
        ),
        ({name: None for name in FILES if name.startswith("val/images")}, "no picture, expected val/images/"),
    ],
)
def test_errors_describe_the_problem(tmp_path, changes, message):
    files = {name: content for name, content in {**FILES, **changes}.items() if content is not None}
    tar(tmp_path / "tiny_imagenet" / "tiny_imagenet_200_32x32_train_val.tar.xz", files)
    with pytest.raises(CorruptDataError, match=message):
        TinyImageNet(tmp_path, train=False)


@pytest.mark.parametrize(
    ("train", "each", "data"),
    [
        (True, 500, "f653ebd287e10975b63ce42f517ec5fdfb1676d02f54d602b3d66c45da5f6dad"),
        (False, 50, "05fa735766aab16ee5041ff27f7ca4be10295fb50866c372f8bcb9ca42eec1d2"),
    ],
)
@pytest.mark.slow
def test_the_real_set(real, train, each, data):
    dataset = TinyImageNet(real("tiny_imagenet"), train=train)
    if dataset.data.shape[2:] != (32, 32):
        pytest.skip("the digest is that of the set reduced to 32×32")
    assert torch.bincount(dataset.labels).tolist() == [each] * 200
    assert digest(dataset.data) == data
