from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from hypersphere.data.resizing import crop_box, resize_images, set_channels

from .files import random

METHODS = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}
sides = st.integers(1, 60)


@given(sides, sides, sides, sides, st.sampled_from(list(METHODS)))
@settings(max_examples=60)
def test_close_to_pillow(height, width, tall, broad, interpolation):
    pixels = random(height, width, 3)
    found = resize_images(torch.from_numpy(pixels).permute(2, 0, 1), (tall, broad), interpolation=interpolation)
    expected = np.asarray(Image.fromarray(pixels).resize((broad, tall), METHODS[interpolation])).astype(int)
    apart = np.abs(found.permute(1, 2, 0).numpy().astype(int) - expected)
    assert apart.max() <= 2 if interpolation == "bilinear" else apart.mean() <= 2


@given(sides, sides, sides, sides)
@settings(max_examples=60)
def test_nearest_is_the_pixel_at_the_center(height, width, tall, broad):
    pixels = torch.arange(height * width).reshape(1, height, width)
    found = resize_images(pixels, (tall, broad), interpolation="nearest")
    rows = [Fraction(2 * i + 1, 2) * height / tall for i in range(tall)]
    columns = [Fraction(2 * i + 1, 2) * width / broad for i in range(broad)]
    assert found[0].tolist() == [[int(row) * width + int(column) for column in columns] for row in rows]


@given(sides, sides, sides, sides)
@settings(max_examples=60)
def test_cover_and_contain_keep_the_aspect(height, width, tall, broad):
    image = torch.full((1, height, width), 200, dtype=torch.uint8)
    assert resize_images(image, (tall, broad), "cover").eq(200).all()
    inside = resize_images(image, (tall, broad), "contain")
    assert inside.shape == (1, tall, broad)
    rows, columns = inside[0].eq(200).any(1).sum().item(), inside[0].eq(200).any(0).sum().item()
    assert rows == tall or columns == broad
    assert abs(rows - tall * min(1, height * broad / (width * tall))) <= 1
    assert abs(columns - broad * min(1, width * tall / (height * broad))) <= 1


def test_the_picture_is_centered_in_the_fill():
    image = torch.zeros(1, 2, 2, dtype=torch.uint8)
    assert resize_images(image, (2, 5), "contain", fill=1.0)[0, 0].tolist() == [255, 0, 0, 255, 255]
    assert resize_images(image.float(), (2, 4), "contain", fill=0.5)[0, 0].tolist() == [0.5, 0, 0, 0.5]


def test_gray_agrees_with_pillow():
    pixels = random(50, 60, 3)
    found = set_channels(torch.from_numpy(pixels).permute(2, 0, 1), 1)
    assert np.array_equal(found[0].numpy(), np.asarray(Image.fromarray(pixels).convert("L")))
    floating = set_channels(torch.from_numpy(pixels).permute(2, 0, 1) / 255, 1)
    assert (floating * 255 - found).abs().max() < 0.51
    assert set_channels(found, 3).shape == (3, 50, 60)


@pytest.mark.parametrize("box", [(-1, 0, 2, 2), (0, 0, 0, 2), (0, 0, 5, 2), (0, 2, 1, 1)])
def test_a_crop_must_lie_inside(box):
    with pytest.raises(ValueError, match="the crop box must lie inside the image of 4×3"):
        crop_box(torch.zeros(1, 3, 4), box)


@pytest.mark.parametrize("shape", [(1, 40_000), (40_000, 1), (1, 2_000_000), (3, 30_001)])
def test_cover_does_not_enlarge_what_it_cuts_off(shape, monkeypatch):
    sizes = []
    real = torch.nn.functional.interpolate

    def recorded(images, size, **options):
        sizes.append(size)
        return real(images, size, **options)

    monkeypatch.setattr(torch.nn.functional, "interpolate", recorded)
    image = torch.zeros(1, *shape, dtype=torch.uint8)
    middle = [(length - 1) // 2 for length in shape]
    image[:, middle[0] - (shape[0] > 1) : middle[0] + 2, middle[1] - (shape[1] > 1) : middle[1] + 2] = 255
    found = resize_images(image, (112, 96), "cover")
    assert found.shape == (1, 112, 96)
    assert found[0, 56, 48] == 255
    assert (
        max(tall * broad for tall, broad in sizes) <= 7 * 112 * 96
    )  # four times the target and two more source pixels


def test_cover_of_ordinary_pictures_is_the_center_of_the_whole():
    image = torch.from_numpy(random(1, 30, 119))
    whole = resize_images(image, (20, round(119 * 20 / 30)))
    left = (whole.shape[2] - 20) // 2
    assert torch.equal(resize_images(image, (20, 20), "cover"), whole[..., left : left + 20])
