import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

from hypersphere.data import (
    ArraySource,
    CorruptDataError,
    DataError,
    DatasetSource,
    Digits,
    MissingDataError,
    PicturePreprocessing,
    open_source,
)
from hypersphere.data.sources import read_arrays
from tests.data.files import random

from .contracts import PIXELS, SourceContract

STACK, LABELS = np.stack(list(PIXELS.values())), np.array([name[0] for name in PIXELS])


class TestPairOfArrays(SourceContract):
    def make(self, folder):
        return STACK, LABELS


class TestNpz(SourceContract):
    def make(self, folder):
        np.savez_compressed(folder / "set.npz", images=STACK, labels=LABELS)
        return folder / "set.npz"


class TestFolderOfOneNpz(SourceContract):
    def make(self, folder):
        np.savez(folder / "set.npz", x=STACK.transpose(0, 3, 1, 2), y=LABELS.astype("S"))
        (folder / "SOURCE.md").write_text("where it is from")
        return folder


def test_tensors_and_columns():
    source = ArraySource(torch.from_numpy(STACK), torch.arange(6) % 2, split=["train", "test"] * 3, is_query=[True] * 6)
    assert source.classes == ("0", "1")
    assert source.splits == ("test", "train")
    assert source.records[0].is_query is True
    with pytest.raises(CorruptDataError, match="split must hold one value for each image"):
        ArraySource(STACK, LABELS, split=["train"])


def test_ambiguous_arrays_must_be_named(tmp_path):
    np.savez(tmp_path / "set.npz", mel=random(4, 5, 6), speaker=np.array([1, 1, 2, 2]), digit=np.arange(4))
    with pytest.raises(
        CorruptDataError, match="say which array holds the labels, labels=NAME; it could be speaker or digit"
    ):
        open_source(tmp_path / "set.npz")
    assert open_source(tmp_path / "set.npz", labels="speaker").classes == ("1", "2")
    assert len(open_source(tmp_path / "set.npz", labels="digit", images="mel").classes) == 4
    with pytest.raises(CorruptDataError, match="labels must be one of speaker, digit, got 'mel'"):
        open_source(tmp_path / "set.npz", labels="mel")


def test_speakers(real_file):
    path = real_file("spoken_digits/spoken_digits_48.npz")
    source = open_source(path.parent, labels="speaker")
    assert len(source) == 4800
    assert source.classes == tuple(str(i) for i in range(1, 49))
    picture, label = source.dataset(PicturePreprocessing(size=(40, 80), channels=1))[4799]
    assert picture.shape == (1, 40, 80)
    with np.load(path) as stored:
        assert torch.equal(picture[0], torch.from_numpy(stored["mel"][4799]))
        assert source.classes[label] == str(stored["speaker"][4799])


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (np.zeros((2, 3)), [0, 1], "images must be pixels"),
        (np.zeros((2, 3, 3), np.int64), [0, 1], "images must be pixels .* got int64"),
        (np.zeros((2, 3, 3)), [0, 1, 2], "labels must be 2 whole numbers or texts"),
        (np.zeros((2, 3, 3)), [0.5, 1], "labels must be 2 whole numbers or texts"),
    ],
)
def test_refuses(images, labels, message):
    with pytest.raises(CorruptDataError, match=message):
        ArraySource(images, np.array(labels))


def test_damaged_files(tmp_path):
    with pytest.raises(MissingDataError, match="there is no file"):
        read_arrays(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("no zip")
    with pytest.raises(CorruptDataError, match=r"is not a whole .npz of plain arrays"):
        read_arrays(tmp_path / "text.npz")
    np.savez(tmp_path / "pickled.npz", x=STACK, y=np.array([{}] * 6, dtype=object))
    with pytest.raises(CorruptDataError, match="say which array holds the labels"):
        read_arrays(tmp_path / "pickled.npz")
    np.savez_compressed(tmp_path / "bomb.npz", x=np.zeros((100, 100, 100), np.uint8), y=np.arange(100))
    with pytest.raises(CorruptDataError, match="bytes when unpacked, more than 1000"):
        read_arrays(tmp_path / "bomb.npz", limit=1000)


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
def test_refuses_what_has_no_labeled_items():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(())

    with pytest.raises(DataError, match="pass an iterable dataset to Loader instead"):
        DatasetSource(Stream())
    with pytest.raises(DataError, match=r"an item of the dataset must be \(image, label\), got Tensor"):
        DatasetSource([torch.zeros(1)])
