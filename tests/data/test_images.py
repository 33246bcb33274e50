import numpy as np
import pytest
import torch
from PIL import Image, ImageFile

from hypersphere.data import CorruptDataError, InMemory
from hypersphere.data.images import decode, fit, to_array

from .files import encoded, random


def test_in_memory_batches_are_its_samples():
    dataset = InMemory(torch.from_numpy(random(5, 3, 4, 4)), torch.tensor([1, 0, 2, 1, 1]), ("a", "b", "c"))
    index = torch.tensor([4, 0, 0])
    data, labels = dataset.batch(index)
    assert torch.equal(data, torch.stack([dataset[i][0] for i in index.tolist()]))
    assert labels.tolist() == [1, 1, 1]
    assert dataset.to("cpu").labels.dtype == torch.int64


@pytest.mark.parametrize("labels", [[0, 2], [-1, 0]])
def test_in_memory_refuses_labels_without_a_class(labels):
    with pytest.raises(ValueError, match="labels must lie in 0 … 1"):
        InMemory(torch.zeros(2, 1), torch.tensor(labels), ("a", "b"))


@pytest.mark.parametrize(("pixels", "mode"), [(random(6, 5), "L"), (random(6, 5, 3), "RGB")])
def test_decoding_a_png_is_exact(pixels, mode):
    array = to_array(decode(encoded(pixels), "x.png", mode))
    assert np.array_equal(array, pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1))


def test_other_formats_are_not_tried():
    with pytest.raises(CorruptDataError, match=r"x\.gif: found .* do not decode .*expected a whole PNG or JPEG image"):
        decode(encoded(random(4, 4), "GIF"), "x.gif")


def test_size_is_checked_before_decoding(monkeypatch):
    content = encoded(random(4, 5))
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda image: pytest.fail("decoded"))
    with pytest.raises(CorruptDataError, match=r"ValueError: 4×5 pixels.*expected a whole PNG or JPEG image of 5×4"):
        decode(content, "x.png", shape=(5, 4))


def test_fit_crops_the_centre_then_resizes():
    pixels = random(9, 7)
    assert np.array_equal(np.asarray(fit(Image.fromarray(pixels), crop=3)), pixels[3:6, 2:5])
    assert fit(Image.fromarray(pixels), size=5).size == (5, 5)
    assert np.asarray(fit(Image.fromarray(np.full((8, 8), 9, np.uint8)), 6, 3)).tolist() == [[9] * 3] * 3


@pytest.mark.parametrize(
    ("crop", "size", "message"),
    [(8, None, "crop must lie in 1 … 7, got 8"), (None, 0, "size must be an integer ≥ 1, got 0")],
)
def test_fit_refuses(crop, size, message):
    with pytest.raises(ValueError, match=message):
        fit(Image.fromarray(random(9, 7)), crop, size)
