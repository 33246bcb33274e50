import numpy as np
import pytest

from hypersphere.data import ArraySource, CorruptDataError, DataError, PicturePreprocessing, Record, Source


class Nothing(Source):
    def fetch(self, index):
        return b""


def test_records_are_needed():
    with pytest.raises(DataError, match="it holds no sample"):
        Nothing("it", [])


def test_classes_must_hold_every_label():
    with pytest.raises(ValueError, match="classes must hold every label of it, but 'b' is not among them"):
        Nothing("it", [Record("x", "b")], classes=("a",))


def test_the_order_of_classes():
    order = lambda *labels: Nothing("it", [Record("x", label) for label in labels]).classes
    assert order("10", "9", "-1") == ("-1", "9", "10")
    assert order("10", "9", "x") == ("10", "9", "x")


def test_no_splits():
    source = Nothing("it", [Record("x", "b")])
    assert source.splits == ()
    with pytest.raises(ValueError, match="split must be one of none of it, got 'train'"):
        source.part(split="train")
    assert len(source.part()) == 1


def test_items_have_the_networks_shape():
    dataset = ArraySource(np.zeros((3, 7, 9), np.uint8), ["x", "y", "x"]).dataset(PicturePreprocessing(size=(4, 5)))
    assert len(dataset) == 3
    assert dataset[1][0].shape == (3, 4, 5)
    assert dataset.in_memory().data.shape == (3, 3, 4, 5)
    assert dataset.labels.tolist() == [0, 1, 0]


def test_a_crop_that_does_not_fit_names_the_picture():
    dataset = ArraySource(np.zeros((3, 7, 9), np.uint8), ["x", "y", "x"], "set").dataset(PicturePreprocessing(crop=8))
    with pytest.raises(CorruptDataError, match=r"set\[2\]: crop must be at most 7"):
        dataset[2]
