import math

import pytest
import torch

from hypersphere.data import ResizedCrop

from .test_augment import uniforms


def test_an_integer_window_is_a_slice():
    image = torch.randint(0, 256, (1, 3, 8, 8), dtype=torch.uint8)
    crop = ResizedCrop((4, 4), area=(0.25, 0.25), ratio=(1.0, 1.0))
    for top in (0.0, 0.25, 0.5, 1 - 1e-12):
        u = torch.tensor([[0.5, 0.5, top, 0.5]], dtype=torch.float64)
        start = round(top * 4)
        assert torch.equal(crop(image, u), image[:, :, start : start + 4, 2:6])


def test_a_crop_of_the_whole_image_changes_nothing():
    images = torch.rand(5, 2, 6, 7, dtype=torch.float64)
    crop = ResizedCrop(area=(1.0, 1.0), ratio=(1.0, 1.0))
    assert torch.allclose(crop(images, uniforms(5, crop, (2, 6, 7))), images, atol=1e-12)


def test_windows_lie_inside_and_follow_the_formula():
    """The pixels of the image are their coordinates, so the corners of the crop can be read from the result."""
    h, w, n = 40, 50, 60
    rows, columns = torch.meshgrid(torch.arange(h) + 0.5, torch.arange(w) + 0.5, indexing="ij")
    image = torch.stack([rows / h, columns / w])[None].double().expand(n, -1, -1, -1)
    crop = ResizedCrop((20, 20), area=(0.3, 0.6), ratio=(0.5, 2.0))
    u = uniforms(n, crop, (2, h, w))
    out = crop(image, u)
    share = 0.3 + 0.3 * u[:, 0]
    ratio = (math.log(0.5) + (math.log(2) - math.log(0.5)) * u[:, 1]).exp()
    for axis, length in ((0, (share / ratio).sqrt().clamp(max=1)), (1, (share * ratio).sqrt().clamp(max=1))):
        line = out[:, axis, :, 10] if axis == 0 else out[:, axis, 10, :]
        inner = line[:, 15] - line[:, 5]  # away from the border, where pixels repeat
        assert torch.allclose(inner, length * 0.5, atol=1e-3)
        assert line.min() >= 0
        assert line.max() <= 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": (0, 3)}, r"size must be \(height, width\)"),
        ({"area": (0.0, 1.0)}, "area must be two numbers"),
        ({"ratio": (2.0, 1.0)}, "ratio must be two numbers"),
    ],
)
def test_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        ResizedCrop(**options)
