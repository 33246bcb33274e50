import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hypersphere.geometry import chebyshev


@pytest.mark.parametrize("m", range(1, 9))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_cos_of_the_multiple_angle(m, dtype):
    cos = torch.linspace(-1, 1, 20_001, dtype=dtype)
    reference = np.cos(m * np.arccos(cos.double().numpy()))
    assert np.abs(chebyshev(cos, m).double().numpy() - reference).max() <= 1e-6


@pytest.mark.parametrize("m", range(9))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_slope_at_the_poles_is_exact(m, dtype):
    cos = torch.tensor([-1.0, 1.0], dtype=dtype, requires_grad=True)
    chebyshev(cos, m).sum().backward()
    assert cos.grad.tolist() == [(-1) ** (m + 1) * m * m, m * m]


@pytest.mark.parametrize("m", [1, 2, 3, 4, 8, 1.5, 2.25, 3.7])
def test_gradcheck(m):
    cos = torch.linspace(-0.99, 0.995, 24, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda c: chebyshev(c, m), cos)
    assert torch.autograd.gradgradcheck(lambda c: chebyshev(c, m), cos)


@given(st.floats(0, 10))
def test_real_m(m):
    theta = torch.linspace(0, math.pi, 101, dtype=torch.float64)
    assert torch.allclose(chebyshev(torch.cos(theta), m), torch.cos(m * theta), atol=1e-6)


def test_real_m_is_finite_at_the_poles():
    cos = torch.tensor([-1.0, 1.0], requires_grad=True)
    chebyshev(cos, 2.5).sum().backward()
    assert torch.isfinite(cos.grad).all()
    assert cos.grad[1] == 6.25


def test_half_precision_is_computed_in_float32():
    cos = torch.tensor([0.7, -0.3]).bfloat16()
    assert torch.equal(chebyshev(cos, 4), chebyshev(cos.float(), 4).bfloat16())


@pytest.mark.parametrize("m", [-1, -0.5, math.nan, math.inf])
def test_refuses(m):
    with pytest.raises(ValueError, match="m must be a number ≥ 0"):
        chebyshev(torch.zeros(1), m)
