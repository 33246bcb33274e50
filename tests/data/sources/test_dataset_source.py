import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

from hypersphere.data import DataError, DatasetSource, Digits, PicturePreprocessing, open_source

from .contracts import PIXELS, SourceContract


class Pairs(Dataset):
    def __len__(self):
        return len(PIXELS)

    def __getitem__(self, index):
        name = list(PIXELS)[index]
        return PIXELS[name], name[0]


class TestDataset(SourceContract):
    def make(self, folder):
        return Pairs()


def test_labels_and_names_of_a_reader():
    digits = Digits()
    source = open_source(digits)
    assert source.classes == digits.classes
    assert torch.equal(source.labels, digits.labels)
    assert torch.equal(source.load(7, PicturePreprocessing(size=(8, 8), channels=1)), digits.data[7])


def test_targets_are_not_read_from_the_items():
    class Targets(Pairs):
        targets = (5, 6, 5, 6, 5, 6)

        def __getitem__(self, index):
            raise AssertionError

    assert open_source(Targets()).classes == ("5", "6")


@pytest.mark.untyped
def test_refuses():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(())

    with pytest.raises(DataError, match="one that can only be iterated over is given to Loader itself"):
        DatasetSource(Stream())
    with pytest.raises(DataError, match=r"an item of the dataset must be \(image, label\), got Tensor"):
        DatasetSource([torch.zeros(1)])
