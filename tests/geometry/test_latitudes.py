import math

import numpy as np
import pytest
import torch

from hypersphere.geometry import latitudes
from hypersphere.geometry.latitudes import (
    evaluate_sine_polynomial,
    evaluate_slope_polynomial,
    fit_sine_polynomial,
    latitude,
    tanh_polynomials,
)

FORMS = [1e3, 5.0, 1.0, 0.7, 0.5, 0.4, 0.3, 0.25]


def cosines():
    """Return cosines over the whole range, denser near 0 and near the poles."""
    near = np.logspace(-38, 0, 20001)
    return np.unique(np.concatenate([np.linspace(-1, 1, 40001), near, -near, 1 - near, near - 1]).astype(np.float32))


@pytest.fixture(params=[False, True], ids=["eager", "traced"])
def traced(request, monkeypatch):
    """Run the eager and the traced form of the formula."""
    monkeypatch.setattr(latitudes, "is_traced", lambda: request.param)


def value_of(k):
    return lambda angle: np.tanh(angle / (2 * k)) / math.tanh(math.pi / (4 * k))


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("k", [None, *FORMS])
def test_digits_of_the_value_everywhere(k):
    cos = cosines()
    expected = np.arcsin(cos.astype(np.float64))
    if k is None:
        value, over = latitude(torch.from_numpy(cos))
    else:
        expected = value_of(k)(expected)
        value, over = evaluate_sine_polynomial(torch.from_numpy(cos), tanh_polynomials(k)[0])
    assert (value[cos == 0] == 0).all()
    normal = np.abs(expected) > 2**-125
    assert (np.abs(value.numpy() - expected)[normal] <= 3 * 2**-23 * np.abs(expected)[normal]).all()
    wide = cos.astype(np.float64)
    inverse = 1 / np.sqrt(np.maximum((1 - wide) * (1 + wide), 2**-23))
    assert np.abs(over.numpy() / inverse - 1).max() <= 4 * 2**-23


@pytest.mark.usefixtures("traced")
def test_beyond_rounding_and_not_a_number():
    value, over = latitude(torch.tensor([1 + 2**-23, -1 - 2**-23, math.nan]))
    assert value[:2].tolist() == pytest.approx([math.pi / 2, -math.pi / 2], rel=1e-6)
    assert torch.isfinite(over[:2]).all()
    assert value[2].isnan()
    slope = evaluate_slope_polynomial(torch.tensor([1 + 2**-23, -1.0, math.nan]), (1.0,))
    assert slope[:2].tolist() == pytest.approx([2**11.5, 2**11.5], rel=1e-6)
    assert slope[2].isnan()


@pytest.mark.parametrize("k", [k for k in FORMS if k >= 0.4])
def test_the_slope_alone(k):
    cos = np.linspace(-0.99, 0.99, 9999).astype(np.float32)
    angle = np.arcsin(cos.astype(np.float64))
    in_angle = (1 / math.tanh(math.pi / (4 * k))) / (2 * k) / np.cosh(angle / (2 * k)) ** 2
    found = evaluate_slope_polynomial(torch.from_numpy(cos), tanh_polynomials(k)[1]).numpy() * np.cos(angle)
    assert np.abs(found - in_angle).max() <= 2e-6 * in_angle.max()


def test_what_is_too_steep_has_no_polynomial():
    assert tanh_polynomials(0.3)[1] is None
    assert tanh_polynomials(0.2) == (None, None)
    assert fit_sine_polynomial(lambda angle: torch.tanh(100 * angle)) is None


def test_the_coefficients_of_the_latitude_are_the_ones_that_are_found():
    found = fit_sine_polynomial(lambda angle: angle)
    assert found == pytest.approx(latitudes._LATITUDE, rel=1e-7)


def test_a_model_on_no_device_has_polynomials():
    tanh_polynomials.cache_clear()
    with torch.device("meta"):
        assert len(tanh_polynomials(0.5)[0]) == 9


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_take_arcsin(dtype):
    cos = torch.linspace(-1, 1, 101, dtype=dtype)
    value, over = latitude(cos)
    assert torch.equal(value, torch.asin(cos))
    assert over.dtype == dtype
