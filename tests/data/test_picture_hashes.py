import io

import numpy as np
import pytest
import torch
from PIL import Image

from hypersphere.data.picture_hashes import NEAR, difference_hash, near_groups, pixel_digest, same_groups


def smooth(seed, size=64, channels=3):
    """A picture of waves, as a photograph has them rather than noise."""
    draw = np.random.default_rng(seed)
    y, x = np.mgrid[0:size, 0:size] / size
    waves = sum(
        np.sin(2 * np.pi * (draw.uniform(-4, 4) * x + draw.uniform(-4, 4) * y) + draw.uniform(0, 6)) for _ in range(6)
    )
    grey = np.interp(waves, (waves.min(), waves.max()), (0, 255)).astype(np.uint8)
    return torch.from_numpy(np.stack([grey] * channels))


def saved_again(pixels, quality=60, size=None):
    image = Image.fromarray(pixels.permute(1, 2, 0).numpy())
    stream = io.BytesIO()
    (image if size is None else image.resize((size, size))).save(stream, "JPEG", quality=quality)
    return torch.from_numpy(np.array(Image.open(stream))).permute(2, 0, 1)


def bits(one, other):
    return sum(bin(a ^ b).count("1") for a, b in zip(one, other, strict=True))


def test_digests_are_equal_for_equal_pixels_only():
    picture = smooth(0)
    changed = picture.clone()
    changed[0, 3, 3] ^= 1
    assert pixel_digest(picture) == pixel_digest(picture.clone())
    assert pixel_digest(picture) != pixel_digest(changed)
    assert pixel_digest(picture[:, :, ::2]) == pixel_digest(picture[:, :, ::2].contiguous())


@pytest.mark.parametrize("change", [{}, {"size": 48}, {"quality": 30}, {"size": 128}])
def test_a_picture_saved_again_stays_near(change):
    for seed in range(5):
        picture = smooth(seed)
        assert bits(difference_hash(picture), difference_hash(saved_again(picture, **change))) <= NEAR


def test_other_pictures_are_far():
    hashes = [difference_hash(smooth(seed)) for seed in range(20)]
    assert min(bits(a, b) for i, a in enumerate(hashes) for b in hashes[:i]) > 4 * NEAR


def test_groups_are_those_of_brute_force():
    draw = np.random.default_rng(0)
    hashes = []
    for _ in range(60):
        base = draw.integers(0, 256, 32, dtype=np.uint8)
        hashes.append(base.tobytes())
        for flips in draw.integers(0, 12, 3):
            changed = np.unpackbits(base)
            changed[draw.choice(256, flips, replace=False)] ^= 1
            hashes.append(np.packbits(changed).tobytes())
    wanted = {frozenset([i]) for i in range(len(hashes))}
    for i, one in enumerate(hashes):
        for j, other in enumerate(hashes[:i]):
            if bits(one, other) <= NEAR:
                a, b = (next(group for group in wanted if k in group) for k in (i, j))
                wanted = (wanted - {a, b}) | {a | b}
    assert {frozenset(group) for group in near_groups(hashes)} == {group for group in wanted if len(group) > 1}


def test_nearly_empty_pictures_are_not_called_near():
    one, other = (bytearray(32) for _ in range(2))
    one[0], other[9] = 7, 7
    assert near_groups([bytes(one), bytes(other), bytes(32), bytes(32)]) == []


def test_same_groups():
    assert same_groups([]) == []
    assert same_groups([b"x"] * 3) == [[0, 1, 2]]
