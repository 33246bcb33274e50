import numpy as np
import pytest

from hypersphere.data import ArraySource, CorruptDataError, Preprocessing


def test_items_have_the_networks_shape():
    dataset = ArraySource(np.zeros((3, 7, 9), np.uint8), ["x", "y", "x"]).dataset(Preprocessing(size=(4, 5)))
    assert len(dataset) == 3
    assert dataset[1][0].shape == (3, 4, 5)
    assert dataset.in_memory().data.shape == (3, 3, 4, 5)
    assert dataset.labels.tolist() == [0, 1, 0]


def test_a_crop_that_does_not_fit_names_the_picture():
    dataset = ArraySource(np.zeros((3, 7, 9), np.uint8), ["x", "y", "x"], "set").dataset(Preprocessing(crop=8))
    with pytest.raises(CorruptDataError, match=r"set\[2\]: crop must be at most 7"):
        dataset[2]
