"""Dimension-dependent kernels against Gegenbauer polynomials, quadrature, finite differences and random points."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.special import eval_gegenbauer, gammaln

from hypersphere.energy import (
    MHE,
    MMD,
    CoMHE,
    Heat,
    KernelStein,
    RandomProjection,
    hyperspherical_energy,
    random_energy,
)
from hypersphere.energy.kernels import rebuild_kernel
from hypersphere.energy.zonal_kernels import sum_gegenbauer
from hypersphere.geometry import uniform

MEMBERS = [(kind, dim) for kind in (Heat, MMD, KernelStein) for dim in (2, 3, 17, 512)]
MEAN = {Heat: 1.0, MMD: 0.0, KernelStein: 0.0}


def density(cos, dim):
    log = gammaln(dim / 2) - gammaln((dim - 1) / 2) - 0.5 * math.log(math.pi)
    return math.exp(log + (dim - 3) / 2 * math.log1p(-cos * cos))


def over_the_sphere(function, dim):
    """Return the expectation of a function of the cosine of uniform points, by adaptive quadrature over the angle."""
    reach = min(math.pi / 2, 14 / math.sqrt(dim))

    def integrand(theta):
        cos = math.sin(theta)  # theta counts from the equator
        return function(cos) * density(cos, dim) * math.cos(theta)

    edge = 0.0 if dim > 3 else 1e-9
    return quad(integrand, -reach + edge, reach - edge, epsabs=1e-11, limit=400)[0]


def brute_force(kind, t, dim, cos):
    """Return the kernels by scipy, term by term with exact binomials."""
    if kind is MMD:
        gaussian = lambda c: math.exp(-t * (2 - 2 * c))
        return gaussian(cos) - over_the_sphere(gaussian, dim)
    total = 0.0
    for k in range(80):
        count = 1 if k == 0 else (2 * k + dim - 2) * math.comb(k + dim - 3, k - 1) / k if dim > 2 else 2
        rate = k * (k + dim - 2) / (dim - 1)
        polynomial = (
            math.cos(k * math.acos(cos))
            if dim == 2
            else eval_gegenbauer(k, dim / 2 - 1, cos) / eval_gegenbauer(k, dim / 2 - 1, 1.0)
        )
        total += count * math.exp(-t * rate) * polynomial * (rate**2 if kind is KernelStein else 1)
    return total


@pytest.mark.parametrize(("kind", "dim"), MEMBERS)
class TestZonalKernels:
    def test_agrees_with_scipy(self, kind, dim):
        kernel = kind().for_dimension(dim)
        for cos in (-0.97, -0.3, 0.0, 0.4, 0.9):
            q = torch.tensor(2 - 2 * cos, dtype=torch.float64)
            assert kernel.value(q).item() == pytest.approx(brute_force(kind, kernel.t, dim, cos), rel=1e-8, abs=1e-8)

    def test_the_mean_over_the_sphere_is_exact(self, kind, dim):
        kernel = kind().for_dimension(dim)
        mean = over_the_sphere(lambda c: kernel.value(torch.tensor(2 - 2 * c, dtype=torch.float64)).item(), dim)
        scale = float(kernel.value(torch.zeros((), dtype=torch.float64)))
        assert mean == pytest.approx(MEAN[kind], abs=1e-8 * max(1, scale))

    def test_the_slope_is_the_derivative(self, kind, dim):
        kernel = kind().for_dimension(dim)
        q = torch.linspace(0.01, 3.99, 40, dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(kernel.value(q).sum(), q)
        assert torch.allclose(kernel.slope(q), slope, rtol=1e-8, atol=1e-10 * slope.abs().max().item())

    def test_is_rebuilt_and_refuses_another_dimension(self, kind, dim):
        kernel = kind(1.5).for_dimension(dim)
        again = rebuild_kernel(f"{kind.__module__}.{kind.__qualname__}", kernel.parameters)
        assert repr(again) == repr(kernel)
        assert kernel.for_dimension(dim) is kernel
        with pytest.raises(ValueError, match="points have 5 dimensions"):
            kernel.for_dimension(5)

    def test_energy_and_gradient_of_points(self, kind, dim):
        w = torch.randn(9, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
        x = torch.nn.functional.normalize(w, dim=1)
        kernel = kind().for_dimension(dim)
        cos = (x @ x.T)[~torch.eye(9, dtype=torch.bool)]
        expected = kernel.value(2 - 2 * cos).mean()
        found = hyperspherical_energy(w, kernel=kind())
        assert found.item() == pytest.approx(expected.item(), rel=1e-9)
        (gradient,), (exact,) = torch.autograd.grad(found, w), torch.autograd.grad(expected, w)
        assert torch.allclose(gradient, exact, rtol=1e-7, atol=1e-10)

    def test_random_points_have_the_mean_of_the_uniform_distribution(self, kind, dim):
        n = 400
        x = uniform(n, dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        found, expected = hyperspherical_energy(x, kernel=kind()).item(), random_energy(n, dim, kind())
        assert expected.mean == pytest.approx(MEAN[kind], abs=1e-6)
        assert abs(found - expected.mean) < 5 * expected.std

    def test_crowded_points_cost_more(self, kind, dim):
        x = uniform(50, dim, generator=torch.Generator().manual_seed(0))
        crowded = x + 3 * x[:1]
        assert hyperspherical_energy(crowded, kernel=kind()) > hyperspherical_energy(x, kernel=kind())


def test_the_stein_kernel_is_the_laplacian_applied_twice():
    dim, t, step = 5, 0.8, 1e-3
    cos = np.linspace(-0.8, 0.8, 9)

    def laplacian(function, c):
        first = (function(c + step) - function(c - step)) / (2 * step)
        second = (function(c + step) - 2 * function(c) + function(c - step)) / step**2
        return (1 - c * c) * second - (dim - 1) * c * first

    heat = lambda c: Heat(t, dim).value(torch.from_numpy(np.asarray(2 - 2 * c))).numpy()
    wanted = laplacian(lambda c: laplacian(heat, c), cos) / (dim - 1) ** 2
    found = KernelStein(t, dim).value(torch.from_numpy(2 - 2 * cos)).numpy()
    assert np.abs(found - wanted).max() < 1e-3 * np.abs(wanted).max()


@pytest.mark.parametrize("dim", [2, 3, 8])
def test_gegenbauer_polynomials_are_scipys(dim):
    cos = torch.linspace(-1, 1, 11, dtype=torch.float64)
    for k in range(8):
        found = sum_gegenbauer([0.0] * k + [1.0], dim, cos)
        order = dim / 2 - 1
        wanted = (
            torch.cos(k * cos.acos())
            if dim == 2
            else torch.from_numpy(eval_gegenbauer(k, order, cos.numpy()) / eval_gegenbauer(k, order, 1.0))
        )
        assert torch.allclose(found, wanted, atol=1e-12)


@pytest.mark.parametrize("kernel", [Heat(), MMD(), KernelStein(), Heat(0.7)], ids=repr)
def test_are_kernels_of_mhe_whose_layers_have_different_dimensions(kernel):
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 5))
    mhe = MHE(net, kernel=kernel, half_space=False, hidden=1.0)
    mhe().backward()
    assert all(torch.isfinite(p.grad).all() for p in (net[0].weight, net[2].weight))
    comhe = CoMHE(net, RandomProjection(dim=3, count=2), kernel=kernel)
    assert torch.isfinite(comhe())


@pytest.mark.untyped
def test_compiles_as_one_graph():
    w = torch.randn(9, 5, requires_grad=True)
    kernel = Heat()
    energy = lambda w: hyperspherical_energy(w, kernel=kernel)
    compiled = torch.compile(energy, fullgraph=True, backend="aot_eager")(w)
    assert torch.allclose(compiled, energy(w))
    assert torch.allclose(*(torch.autograd.grad(value, w)[0] for value in (compiled, energy(w))))


def test_refuses():
    for kind in (Heat, MMD, KernelStein):
        with pytest.raises(ValueError, match="t must be a number > 0"):
            kind(0.0)
        with pytest.raises(ValueError, match="dim must be an integer ≥ 2"):
            kind(1.0, 1)
        with pytest.raises(ValueError, match="needs the dimension of its points"):
            kind().value(torch.ones(1))
    with pytest.raises(ValueError, match="t=1e-06 is too small for Heat in 3 dimensions"):
        Heat(1e-6, 3).value(torch.ones(1))
    with pytest.raises(ValueError, match="angles ignore"):
        hyperspherical_energy(torch.eye(3), kernel=Heat(), importance=torch.ones(3))
