import colorsys
import math

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance

from hypersphere.data import ColorJitter

from .files import random
from .test_augment import uniforms

PICTURE = random(9, 8, 3)
BATCH = torch.from_numpy(PICTURE).permute(2, 0, 1)[None]


def jittered(name, factor):
    """Apply the random number that gives this factor."""
    column = ("brightness", "contrast", "saturation").index(name)
    u = torch.full((1, 4), 0.5, dtype=torch.float64)
    u[0, column] = factor / 2  # 1 + (2u − 1)
    return ColorJitter(**{name: 1.0})(BATCH, u)[0].permute(1, 2, 0).numpy().astype(int)


@pytest.mark.parametrize("factor", [0.0, 0.4, 1.0, 1.7])
@pytest.mark.parametrize(
    ("name", "enhancer"),
    [("brightness", ImageEnhance.Brightness), ("contrast", ImageEnhance.Contrast), ("saturation", ImageEnhance.Color)],
)
def test_is_pillows_enhancement(name, enhancer, factor):
    expected = np.asarray(enhancer(Image.fromarray(PICTURE)).enhance(factor)).astype(int)
    assert np.abs(jittered(name, factor) - expected).max() <= 2  # Pillow rounds the gray value before mixing


def test_hue_turns_colors_and_keeps_luma():
    gray = torch.full((1, 3, 2, 2), 0.5, dtype=torch.float64)
    u = torch.tensor([[0.5, 0.5, 0.5, 1.0]], dtype=torch.float64)
    assert torch.allclose(ColorJitter(hue=1.0)(gray, u), gray, atol=1e-3)
    color = torch.tensor([0.6, 0.3, 0.3], dtype=torch.float64).reshape(1, 3, 1, 1)
    turned = ColorJitter(hue=2 * math.pi / 3)(color, u).flatten()
    weight = torch.tensor([0.299, 0.587, 0.114], dtype=torch.float64)
    assert float(turned @ weight) == pytest.approx(float(color.flatten() @ weight), abs=1e-9)
    hue = colorsys.rgb_to_hsv(*turned.tolist())[0]
    assert min(abs(hue - 1 / 3), abs(hue - 2 / 3)) < 0.1  # a third of the circle away from red


def test_zero_strength_changes_nothing_and_images_differ():
    images = BATCH.expand(20, -1, -1, -1)
    u = uniforms(20, ColorJitter(), (3, 9, 8))
    assert torch.equal(ColorJitter()(images, u), images)
    jitter = ColorJitter(0.4, 0.4, 0.4, 0.2)
    out = jitter(images, u)
    assert out.dtype == torch.uint8
    assert len(torch.unique(out.flatten(1), dim=0)) == 20
    assert torch.equal(out[7:8], jitter(images[7:8], u[7:8]))


def test_gray_images_and_half_precision():
    u = uniforms(2, ColorJitter(), (1, 2, 2))
    assert ColorJitter(0.5, 0.5, 0.5, 0.5)(torch.rand(2, 1, 2, 2, dtype=torch.float16), u).dtype == torch.float16


@pytest.mark.parametrize("values", [(-0.1, 0, 0, 0), (0, 2, 0, 0), (0, 0, math.nan, 0), (0, 0, 0, 4)])
def test_refuses(values):
    with pytest.raises(ValueError, match="brightness, contrast and saturation must lie in 0 … 1 and hue in 0 … π"):
        ColorJitter(*values)
