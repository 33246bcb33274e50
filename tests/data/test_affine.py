import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from hypersphere.data import Affine, InMemory, Loader, Stream


def uniforms(n, seed=0):
    return Stream(seed, 9).uniforms(6 * n).reshape(n, 6)


def slow(image, u, augment):
    """One float64 image by scipy, which wants rows before columns and the inverse map."""
    v = 2 * u.numpy() - 1
    angle, k = v[0] * augment.rotation, v[1] * augment.shear
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    forward = turn @ np.array([[1, k], [0, 1]]) @ np.diag(1 + augment.scale * v[2:4])
    inverse = np.linalg.inv(forward)[::-1, ::-1]
    centre = (np.array(image.shape[1:]) - 1) / 2
    offset = centre - inverse @ (centre + augment.shift * v[5:3:-1])
    # One pixel of ``fill`` all around: beyond the outermost centers both fade towards it in the same way.
    padded = np.pad(image, ((0, 0), (2, 2), (2, 2)), constant_values=augment.fill)
    shifted = offset + 2 - inverse @ np.array([2, 2])
    return np.stack([ndimage.affine_transform(c, inverse, shifted, order=1, cval=augment.fill) for c in padded])[
        :, 2:-2, 2:-2
    ]


@settings(max_examples=30)
@given(
    st.integers(1, 9),
    st.integers(1, 9),
    st.floats(0, 3),
    st.floats(0, 0.5),
    st.floats(0, 0.5),
    st.floats(0, 2),
    st.integers(0, 99),
)
def test_is_scipys_affine_transform(h, w, rotation, scale, shear, shift, seed):
    augment = Affine(rotation, scale, shear, shift, fill=0.7)
    images = torch.rand(3, 2, h, w, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    u = uniforms(3, seed)
    expected = np.stack([slow(image.numpy(), row, augment) for image, row in zip(images, u, strict=True)])
    np.testing.assert_allclose(augment(images, u).numpy(), expected, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32, torch.float64])
def test_nothing_moves_without_ranges(dtype):
    images = torch.randint(0, 256, (4, 3, 5, 7)).to(dtype)
    moved = Affine(fill=255)(images, uniforms(4))
    assert moved.dtype == dtype
    torch.testing.assert_close(moved, images, atol=1e-3, rtol=0)
    assert dtype.is_floating_point or torch.equal(moved, images)


def test_bytes_are_rounded_and_stay_in_range():
    images, augment = torch.randint(0, 256, (8, 1, 9, 9), dtype=torch.uint8), Affine(0.5, 0.3, 0.3, 2.0, fill=255)
    exact = augment(images.double(), uniforms(8))
    moved = augment(images, uniforms(8))
    assert moved.dtype == torch.uint8
    assert (moved.double() - exact).abs().max() <= 0.5 + 1e-3


def test_a_whole_shift_moves_pixels_and_fills():
    image = torch.arange(1.0, 10.0).reshape(1, 1, 3, 3)
    to_the_right = torch.tensor([[0.5, 0.5, 0.5, 0.5, 1.0, 0.5]])
    assert Affine(shift=1.0, fill=7.0)(image, to_the_right)[0, 0].tolist() == [[7, 1, 2], [7, 4, 5], [7, 7, 8]]


def test_a_sample_does_not_feel_its_batch():
    images, u, augment = torch.rand(6, 1, 8, 8), uniforms(6), Affine(0.3, 0.2, 0.2, 1.0)
    one_by_one = torch.cat([augment(images[i : i + 1], u[i : i + 1]) for i in range(6)])
    assert torch.equal(augment(images, u), one_by_one)


def test_the_loader_gives_it_its_numbers():
    dataset = InMemory(
        torch.randint(0, 256, (10, 1, 6, 6), dtype=torch.uint8), torch.zeros(10, dtype=torch.long), ("a",)
    )
    first, again = (
        torch.cat([x for x, _ in Loader(dataset, batch_size=5, augment=Affine(0.5, shift=1.0), seed=3)])
        for _ in range(2)
    )
    assert torch.equal(first, again)
    assert first.shape == (10, 1, 6, 6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rotation": -1.0}, "rotation, shear and shift must be ≥ 0"),
        ({"scale": 1.0}, r"scale in \[0, 1\), got 0.0, 0.0, 0.0 and 1.0"),
        ({"fill": math.nan}, "fill must be finite"),
    ],
)
def test_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        Affine(**options)
