import math

import numpy as np
import pytest
import torch

from hypersphere.geometry.tanh_of_angles import tanh_of_arctan, tanh_of_latitude

FORMS = [1e3, 5.0, 1.0, 0.7, 0.5, 0.3, 0.1]


def cosines():
    """All of the range, closer and closer to 0 and to the poles."""
    near = np.logspace(-38, 0, 20001)
    return np.unique(np.concatenate([np.linspace(-1, 1, 40001), near, -near, 1 - near, near - 1]).astype(np.float32))


@pytest.mark.parametrize("k", [*FORMS, 0.05, 1e-3])
def test_digits_of_the_value_everywhere(k):
    cos = cosines()
    expected = np.tanh(np.arcsin(cos.astype(np.float64)) / (2 * k))
    value = tanh_of_latitude(torch.from_numpy(cos), k)[0].numpy()
    assert (value[cos == 0] == 0).all()
    normal = np.abs(expected) > 2**-125
    assert (np.abs(value - expected)[normal] <= 3 * 2**-23 * np.abs(expected)[normal]).all()


@pytest.mark.parametrize("k", FORMS)
def test_the_sine_comes_with_it(k):
    cos = cosines()
    over = tanh_of_latitude(torch.from_numpy(cos), k)[1].numpy()
    wide = cos.astype(np.float64)
    expected = 1 / np.sqrt(np.maximum((1 - wide) * (1 + wide), 2**-23))
    assert np.abs(over / expected - 1).max() <= 4 * 2**-23


def test_beyond_rounding_and_not_a_number():
    value, over = tanh_of_latitude(torch.tensor([1 + 2**-23, -1 - 2**-23, math.nan]), 0.5)
    assert value[:2].tolist() == pytest.approx([math.tanh(math.pi / 2), -math.tanh(math.pi / 2)], rel=1e-6)
    assert torch.isfinite(over[:2]).all()
    assert value[2].isnan()


@pytest.mark.parametrize("k", FORMS)
def test_the_fraction_has_positive_coefficients(k):
    above, below = tanh_of_arctan(k)
    assert (above > 0).all()
    assert (below > 0).all()
    tangent = np.linspace(-1, 1, 999)
    found = tangent * np.polyval(above.numpy()[::-1], tangent**2) / np.polyval(below.numpy()[::-1], tangent**2)
    assert np.abs(found - np.tanh(np.arctan(tangent) / k)).max() <= 2e-8


def test_float64_and_half_take_the_plain_way():
    cos = torch.linspace(-1, 1, 101, dtype=torch.float64)
    value, _ = tanh_of_latitude(cos, 0.5)
    assert torch.equal(value, torch.tanh(torch.asin(cos)))
    assert tanh_of_latitude(cos.bfloat16(), 0.5)[0].dtype == torch.bfloat16
