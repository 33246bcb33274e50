import math

import numpy as np
import pytest
import torch

from hypersphere import angular
from hypersphere.objectives.margins import Context, Multiplicative
from tests.objectives.contracts import ANGLES, MarginContract, waves


class TestMultiplicative(MarginContract):
    margin = Multiplicative(4)

    def formula(self, theta):
        return waves(theta, self.margin.m)

    def test_the_expansion_of_eq_2_7(self):
        c = torch.linspace(-1, 1, 101, dtype=torch.float64)
        s2 = 1 - c * c
        cos4 = c**4 - 6 * c**2 * s2 + s2**2
        k = torch.floor(4 * torch.acos(c) / math.pi).clamp_max(3)
        assert torch.allclose(self.margin.target(c), (-1) ** k * cos4 - 2 * k, atol=1e-7)

    def test_linear_g_is_linear_in_the_angle(self):
        psi = self.margin.target(torch.from_numpy(np.cos(ANGLES)), Context(angular.Linear())).numpy()
        assert np.abs(psi - (1 - 2 * 4 * ANGLES / math.pi)).max() <= 1e-6

    @pytest.mark.parametrize("m", [2, 3, 4, 2.5])
    def test_linear_g_has_its_slope_at_the_knots_in_float32(self, m):
        """1 − 2mθ/π has slope 2m/(π·sin θ) in cos θ, also at the knots, where cos mθ = ±1 has slope 0."""
        knots = torch.tensor([k * math.pi / m for k in range(1, math.ceil(m))])
        cos = torch.cos(knots).requires_grad_()
        (slope,) = torch.autograd.grad(Multiplicative(m).target(cos, Context(angular.Linear())).sum(), cos)
        assert torch.allclose(slope, 2 * m / (math.pi * torch.sin(knots)), rtol=1e-5)


class TestThree(TestMultiplicative):
    margin = Multiplicative(3)

    def test_the_expansion_of_eq_2_7(self):
        c = torch.linspace(-1, 1, 101, dtype=torch.float64)
        k = torch.floor(3 * torch.acos(c) / math.pi).clamp_max(2)
        assert torch.allclose(self.margin.target(c), (-1) ** k * (4 * c**3 - 3 * c) - 2 * k, atol=1e-7)

    def test_linear_g_is_linear_in_the_angle(self):
        psi = self.margin.target(torch.from_numpy(np.cos(ANGLES)), Context(angular.Linear())).numpy()
        assert np.abs(psi - (1 - 2 * 3 * ANGLES / math.pi)).max() <= 1e-6


class TestReal(MarginContract):
    margin = Multiplicative(2.7)

    def formula(self, theta):
        return waves(theta, 2.7)


def test_m_one_is_no_margin():
    cos = torch.linspace(-1, 1, 101)
    assert torch.equal(Multiplicative(1).target(cos), cos)
    assert torch.equal(Multiplicative(1.0).target(cos), cos)


def test_a_real_m_meets_the_integers():
    cos = torch.linspace(-1, 1, 1001, dtype=torch.float64)
    for m in (2, 3, 4):
        for near in (m - 1e-9, m + 1e-9):
            assert torch.allclose(Multiplicative(near).target(cos), Multiplicative(m).target(cos), atol=1e-6)


@pytest.mark.parametrize("m", [0, -1, 0.5, math.nan, math.inf])
def test_refuses(m):
    with pytest.raises(ValueError, match="margin m must be a number ≥ 1"):
        Multiplicative(m)
