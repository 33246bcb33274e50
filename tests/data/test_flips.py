import pytest
import torch

from hypersphere.data import Flip

from .test_augment import uniforms


def test_each_image_is_mirrored_on_its_own():
    images = torch.randint(0, 256, (40, 3, 4, 5), dtype=torch.uint8)
    flip = Flip(0.3, 0.6)
    u = uniforms(40, flip, (3, 4, 5))
    for image, row, found in zip(images, u, flip(images, u), strict=True):
        expected = image.flip(2) if row[0] < 0.3 else image
        assert torch.equal(found, expected.flip(1) if row[1] < 0.6 else expected)


@pytest.mark.parametrize("chances", [(-0.1, 0), (0, 1.1), (float("nan"), 0)])
def test_refuses(chances):
    with pytest.raises(ValueError, match="horizontal and vertical must lie in 0 … 1"):
        Flip(*chances)
