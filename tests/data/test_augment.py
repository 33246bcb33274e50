import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hypersphere.data import FACES, Augmentation, Compose, CropFlip, InMemory, Normalize, RotateJitter, Stream, Subset


def uniforms(n, augment, shape, seed=0):
    count = augment.draws(torch.Size(shape))
    return Stream(seed, 9).uniforms(n * count).reshape(n, count)


def slow_crop_flip(image, u, pad, size, horizontal, vertical):
    """One image, by slicing."""
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
def test_normalize_of_a_dataset_centres_it_and_leaves_it_alone(dtype):
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
    beyond = (noise.abs() > 0.02).float().mean()  # 4.55 % of a Gaussian lies beyond two deviations
    assert abs(float(beyond) - 0.0455) < 0.005


def test_the_base_class_is_abstract_and_draws_nothing():
    with pytest.raises(TypeError, match="abstract"):
        Augmentation()
    assert Normalize().draws(torch.Size((3, 2))) == 0


def test_clouds_alone_are_turned():
    from hypersphere.data import RotateJitter

    with pytest.raises(ValueError, match=r"RotateJitter turns clouds of shape \(b, n, 3\), got \(2, 1, 4, 4\)"):
        RotateJitter.__call__.__wrapped__(RotateJitter(), torch.zeros(2, 1, 4, 4), torch.zeros(2, 17)) if hasattr(
            RotateJitter.__call__, "__wrapped__"
        ) else RotateJitter()(torch.zeros(2, 1, 4, 4), torch.zeros(2, 17))
    for wrong, said in (({"sigma": -1.0}, "sigma"), ({"clip": float("nan")}, "clip"), ({"up": 3}, "up")):
        with pytest.raises(ValueError, match=f"{said} must be"):
            RotateJitter(**wrong)
