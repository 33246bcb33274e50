import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from hypersphere.data import (
    FACES,
    Affine,
    Augmentation,
    Compose,
    CropFlip,
    InMemory,
    Loader,
    Normalize,
    RotateJitter,
    Stream,
    Subset,
)


def uniforms(n, augment, shape, seed=0):
    count = augment.draws(torch.Size(shape))
    return Stream(seed, 9).uniforms(n * count).reshape(n, count)


def slow_crop_flip(image, u, pad, size, horizontal, vertical):
    """Crop and mirror one image by slicing."""
    c, h, w = image.shape
    canvas = torch.zeros(c, h + 2 * pad, w + 2 * pad, dtype=image.dtype)
    canvas[:, pad : pad + h, pad : pad + w] = image
    tall, broad = (h, w) if size is None else (size, size)
    top, left = int(u[0] * (h + 2 * pad - tall + 1)), int(u[1] * (w + 2 * pad - broad + 1))
    window = canvas[:, top : top + tall, left : left + broad]
    if horizontal and u[2] < 0.5:
        window = window.flip(2)
    if vertical and u[2 + horizontal] < 0.5:
        window = window.flip(1)
    return window


@settings(max_examples=60)
@given(
    st.integers(1, 6), st.integers(1, 7), st.integers(1, 7), st.integers(0, 3), st.booleans(), st.booleans(), st.data()
)
def test_crop_flip_is_slicing(n, h, w, pad, horizontal, vertical, data):
    size = data.draw(st.none() | st.integers(1, min(h, w) + 2 * pad))
    augment = CropFlip(pad, size, horizontal, vertical)
    images = torch.randint(0, 256, (n, 3, h, w), dtype=torch.uint8)
    u = uniforms(n, augment, (3, h, w), data.draw(st.integers(0, 1000)))
    expected = torch.stack(
        [slow_crop_flip(image, row, pad, size, horizontal, vertical) for image, row in zip(images, u, strict=True)]
    )
    assert torch.equal(augment(images, u), expected)


def test_every_window_and_mirror_is_equally_likely():
    images = torch.arange(1, 5, dtype=torch.uint8).reshape(1, 1, 2, 2).expand(9000, 1, 2, 2)
    counts = torch.unique(
        CropFlip(pad=1)(images, uniforms(9000, CropFlip(pad=1), (1, 2, 2))), dim=0, return_counts=True
    )[1]
    assert len(counts) == 18
    assert counts.tolist() == pytest.approx([500] * 18, rel=0.2)


def test_crop_flip_refuses():
    with pytest.raises(ValueError, match="pad must be ≥ 0 and size ≥ 1, got -1 and None"):
        CropFlip(pad=-1)
    with pytest.raises(ValueError, match="size must be at most 6, the padded image, got 7"):
        CropFlip(pad=1, size=7)(torch.zeros(1, 1, 4, 4), torch.zeros(1, 3))


def test_faces_are_scaled_as_in_the_text():
    pixels = torch.tensor([0, 127, 128, 255], dtype=torch.uint8).reshape(1, 1, 2, 2)
    expected = (pixels.double() - 127.5) / 128
    assert torch.equal(FACES(pixels, torch.empty(1, 0)).double(), expected)
    assert FACES(pixels, torch.empty(1, 0)).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_normalize_of_a_dataset_centers_it_and_leaves_it_alone(dtype):
    data = torch.randint(0, 256, (50, 3, 4, 4)).to(dtype)
    before = data.clone()
    dataset = InMemory(data, torch.zeros(50, dtype=torch.long), ("a",))
    out = Normalize.of(dataset)(data, torch.empty(50, 0))
    torch.testing.assert_close(out.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(out.std((0, 2, 3), correction=0), torch.ones(3))
    pixelwise = Normalize.of(dataset, pixelwise=True, scale=255.0)(data, torch.empty(50, 0))
    torch.testing.assert_close(pixelwise, (data.float() - data.float().mean(0)) / 255, atol=1e-5, rtol=0)
    assert torch.equal(data, before)


def test_normalize_of_a_part_and_of_single_items():
    data = torch.randint(0, 256, (30, 2, 3, 3), dtype=torch.uint8)
    half = Subset(InMemory(data, torch.zeros(30, dtype=torch.long), ("a",)), torch.arange(15))
    items = [half[i] for i in range(15)]
    mean = data[:15].float().mean((0, 2, 3))
    for dataset in (half, items):
        torch.testing.assert_close(Normalize.of(dataset).mean.flatten(), mean)


def test_normalize_refuses_a_scale_of_zero():
    with pytest.raises(ValueError, match="scale must be > 0"):
        Normalize(0.0, torch.tensor([1.0, 0.0]))


def test_compose_gives_each_step_its_own_numbers():
    first, second = CropFlip(pad=2), CropFlip(pad=1, vertical=True)
    both = Compose(first, FACES, second)
    images = torch.randint(0, 256, (4, 1, 5, 5), dtype=torch.uint8)
    u = uniforms(4, both, (1, 5, 5))
    assert u.shape == (4, 7)
    expected = second(FACES(first(images, u[:, :3]), u[:, 3:3]), u[:, 3:])
    assert torch.equal(both(images, u), expected)


def test_rotation_keeps_height_and_distances():
    clouds = torch.randn(3, 20, 3)
    augment = RotateJitter(sigma=0.0)
    turned = augment(clouds, uniforms(3, augment, (20, 3)))
    torch.testing.assert_close(turned[..., 1], clouds[..., 1])
    torch.testing.assert_close(torch.cdist(turned, turned), torch.cdist(clouds, clouds), atol=1e-4, rtol=0)
    assert (turned - clouds).abs().amax((1, 2)).min() > 0.1


def test_jitter_is_gaussian_and_clipped():
    augment = RotateJitter(sigma=0.01, clip=0.025)
    u = uniforms(2, augment, (5000, 3))
    u[:, 0] = 0
    noise = augment(torch.zeros(2, 5000, 3), u)
    assert abs(float(noise.std()) - 0.01) < 5e-4
    assert float(noise.abs().max()) == pytest.approx(0.025)
    beyond = (noise.abs() > 0.02).float().mean()  # 4.55 % of a Gaussian lies beyond two standard deviations
    assert abs(float(beyond) - 0.0455) < 0.005


def test_the_base_class_is_abstract_and_draws_nothing():
    with pytest.raises(TypeError, match="abstract"):
        Augmentation()
    assert Normalize().draws(torch.Size((3, 2))) == 0


def test_clouds_alone_are_turned():
    from hypersphere.data import RotateJitter

    with pytest.raises(ValueError, match=r"RotateJitter rotates clouds of shape \(b, n, 3\), got \(2, 1, 4, 4\)"):
        RotateJitter.__call__.__wrapped__(RotateJitter(), torch.zeros(2, 1, 4, 4), torch.zeros(2, 17)) if hasattr(
            RotateJitter.__call__, "__wrapped__"
        ) else RotateJitter()(torch.zeros(2, 1, 4, 4), torch.zeros(2, 17))
    for wrong, said in (({"sigma": -1.0}, "sigma"), ({"clip": float("nan")}, "clip"), ({"up": 3}, "up")):
        with pytest.raises(ValueError, match=f"{said} must be"):
            RotateJitter(**wrong)


def six_numbers(n, seed=0):
    return Stream(seed, 9).uniforms(6 * n).reshape(n, 6)


def slow(image, u, augment):
    """Map one float64 image with scipy, which takes the inverse map and rows before columns."""
    v = 2 * u.numpy() - 1
    angle, k = v[0] * augment.rotation, v[1] * augment.shear
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    forward = turn @ np.array([[1, k], [0, 1]]) @ np.diag(1 + augment.scale * v[2:4])
    inverse = np.linalg.inv(forward)[::-1, ::-1]
    center = (np.array(image.shape[1:]) - 1) / 2
    offset = center - inverse @ (center + augment.shift * v[5:3:-1])
    # Add a border of ``fill``, so that both fade to it in the same way beyond the outermost centers.
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
    u = six_numbers(3, seed)
    expected = np.stack([slow(image.numpy(), row, augment) for image, row in zip(images, u, strict=True)])
    np.testing.assert_allclose(augment(images, u).numpy(), expected, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32, torch.float64])
def test_nothing_moves_without_ranges(dtype):
    images = torch.randint(0, 256, (4, 3, 5, 7)).to(dtype)
    moved = Affine(fill=255)(images, six_numbers(4))
    assert moved.dtype == dtype
    torch.testing.assert_close(moved, images, atol=1e-3, rtol=0)
    assert dtype.is_floating_point or torch.equal(moved, images)


def test_bytes_are_rounded_and_stay_in_range():
    images, augment = torch.randint(0, 256, (8, 1, 9, 9), dtype=torch.uint8), Affine(0.5, 0.3, 0.3, 2.0, fill=255)
    exact = augment(images.double(), six_numbers(8))
    moved = augment(images, six_numbers(8))
    assert moved.dtype == torch.uint8
    assert (moved.double() - exact).abs().max() <= 0.5 + 1e-3


def test_a_whole_shift_moves_pixels_and_fills():
    image = torch.arange(1.0, 10.0).reshape(1, 1, 3, 3)
    to_the_right = torch.tensor([[0.5, 0.5, 0.5, 0.5, 1.0, 0.5]])
    assert Affine(shift=1.0, fill=7.0)(image, to_the_right)[0, 0].tolist() == [[7, 1, 2], [7, 4, 5], [7, 7, 8]]


def test_a_sample_does_not_depend_on_its_batch():
    images, u, augment = torch.rand(6, 1, 8, 8), six_numbers(6), Affine(0.3, 0.2, 0.2, 1.0)
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
