import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.special import gammaln, ive

from hypersphere.geometry import log_mean_exponential, mean_length

KAPPA = torch.tensor([0.1, 1.0, 10.0, 100.0, 600.0], dtype=torch.float64)


@pytest.mark.parametrize("dim", [2, 3, 16, 128])
def test_agrees_with_scipys_bessel_functions(dim):
    kappa, order = KAPPA.numpy(), dim / 2 - 1
    wanted = np.log(ive(order, kappa)) + kappa + order * np.log(2 / kappa) + gammaln(dim / 2)
    np.testing.assert_allclose(log_mean_exponential(KAPPA, dim), wanted, atol=5e-12 * dim, rtol=1e-12)
    np.testing.assert_allclose(mean_length(KAPPA, dim), ive(order + 1, kappa) / ive(order, kappa), rtol=1e-12)


@pytest.mark.parametrize("dim", [4, 512, 4096])
def test_is_the_mean_over_the_sphere_also_in_high_dimensions(dim):
    kappa = 3.0 * math.sqrt(dim)
    peak = kappa / dim
    width = 1 / math.sqrt(dim)

    def log_density(c):
        return (dim - 3) / 2 * math.log1p(-c * c)

    ends = (max(-1 + 1e-12, peak - 40 * width), min(1 - 1e-12, peak + 40 * width))
    shift = kappa * min(1, peak)
    above = quad(lambda c: math.exp(kappa * c - shift + log_density(c)), *ends, epsabs=0, limit=500)[0]
    below = quad(
        lambda c: math.exp(log_density(c)), max(-1 + 1e-12, -40 * width), min(1 - 1e-12, 40 * width), limit=500
    )
    wanted = math.log(above / below[0]) + shift
    assert log_mean_exponential(torch.tensor(kappa, dtype=torch.float64), dim).item() == pytest.approx(wanted, rel=1e-8)


@pytest.mark.parametrize("dim", [2, 3, 64, 512])
def test_derivatives(dim):
    kappa = torch.tensor([0.0, 1e-4, 5e-3, 0.7, 9.0, 80.0], dtype=torch.float64, requires_grad=True)
    inner = kappa.detach()[2:].requires_grad_()
    assert torch.autograd.gradcheck(lambda k: log_mean_exponential(k, dim), inner)
    assert torch.autograd.gradcheck(lambda k: mean_length(k, dim), inner)
    assert torch.autograd.gradgradcheck(lambda k: log_mean_exponential(k, dim), inner)
    (slope,) = torch.autograd.grad(mean_length(kappa, dim).sum(), kappa)
    assert slope[0].item() == pytest.approx(1 / dim)
    assert (slope > 0).all()


def test_refuses_a_line():
    for function in (log_mean_exponential, mean_length):
        with pytest.raises(ValueError, match="dim must be an integer ≥ 2"):
            function(KAPPA, 1)
