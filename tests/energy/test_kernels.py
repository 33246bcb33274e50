import math

import pytest
import torch

from hypersphere.energy import hyperspherical_energy
from hypersphere.energy.kernels import AngularRiesz, Gaussian, Kernel, Riesz, choose_kernel, rebuild_kernel

MEMBERS = [Riesz(0), Riesz(1), Riesz(2), Riesz(3.7), AngularRiesz(0), AngularRiesz(1), AngularRiesz(2), Gaussian(2)]


@pytest.mark.parametrize("kernel", MEMBERS, ids=lambda k: f"{type(k).__name__}-{k.parameters}")
class TestKernels:
    def test_the_slope_is_the_derivative(self, kernel):
        q = torch.linspace(0.01, 3.99, 40, dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(kernel.value(q).sum(), q)
        assert torch.allclose(kernel.slope(q), slope, rtol=1e-9)

    def test_both_at_once_are_the_same(self, kernel):
        q = torch.linspace(0.01, 3.99, 40, dtype=torch.float64)
        value, slope = kernel.value_and_slope(q.clone())
        assert torch.allclose(value, kernel.value(q), rtol=1e-12)
        assert torch.allclose(slope, kernel.slope(q), rtol=1e-12)

    def test_decreases(self, kernel):
        values = kernel(torch.cat([torch.zeros(1), torch.logspace(-14, 0.6, 300)]).double())
        assert (values.diff() < 0).all()
        assert torch.isfinite(values).all()

    def test_is_smooth_at_the_floor_and_has_a_bounded_force_below(self, kernel):
        q = torch.tensor([0.5, 0.999999, 1.000001], dtype=torch.float64) * kernel.floor**2
        q.requires_grad_()
        (slope,) = torch.autograd.grad(kernel(q).sum(), q)
        assert slope[1].item() == pytest.approx(slope[2].item(), rel=1e-4)
        assert slope[0] == slope[1]

    def test_is_rebuilt_from_its_name_and_numbers(self, kernel):
        again = rebuild_kernel(f"{type(kernel).__module__}.{type(kernel).__qualname__}", kernel.parameters)
        assert (type(again), repr(again)) == (type(kernel), repr(kernel))


def test_the_formulas():
    z = torch.tensor([0.3, 1.0, 1.7], dtype=torch.float64)
    assert torch.allclose(Riesz(3).value(z**2), z**-3)
    assert torch.allclose(Riesz(0).value(z**2), -z.log())
    assert torch.allclose(AngularRiesz(3).value(z**2), (2 * torch.asin(z / 2)) ** -3)
    assert torch.allclose(AngularRiesz(0).value(z**2), -(2 * torch.asin(z / 2)).log())
    assert torch.allclose(Gaussian(2).value(z**2), torch.exp(-2 * z**2))


def test_the_log_is_the_limit_of_small_powers():
    q, s = torch.tensor([0.2, 1.5], dtype=torch.float64), 1e-6
    assert torch.allclose((Riesz(s).value(q) - 1) / s, Riesz(0).value(q), atol=1e-5)


def test_the_floor_keeps_large_powers_in_float32():
    for s in (0, 2, 7, 30):
        assert Riesz(s).floor ** -(s + 1) <= 1.001e32
    assert Riesz(2).floor == 1e-6


@pytest.mark.parametrize("s", [-1, math.nan, math.inf])
def test_refuses_powers(s):
    with pytest.raises(ValueError, match="s must be a number ≥ 0"):
        Riesz(s)


def test_refuses_the_rest():
    with pytest.raises(ValueError, match="t must be a number > 0"):
        Gaussian(0)
    with pytest.raises(TypeError, match="abstract"):
        Kernel()  # type: ignore[abstract]
    with pytest.raises(TypeError, match="its property parameters must give them"):

        class Forgetful(Kernel):
            def __init__(self, a):
                self.a = a


class Linear(Kernel):
    """a·(4 − q), as a user would write it."""

    def __init__(self, a=1.0):
        self.a = a

    @property
    def parameters(self):
        return (self.a,)

    def value(self, q):
        return self.a * (4 - q)

    def slope(self, q):
        return torch.full_like(q, -self.a)


@pytest.mark.untyped
@pytest.mark.parametrize("half_space", [False, True])
def test_a_custom_kernel_everywhere(half_space):
    w = torch.randn(300, 5, dtype=torch.float64, requires_grad=True)
    x = torch.nn.functional.normalize(w, dim=1)
    x = torch.cat([x, -x]) if half_space else x
    n = len(x)
    expected = 3 * (4 - (x[:, None] - x).square().sum(-1)).fill_diagonal_(0).sum() / (n * (n - 1))
    for run in (hyperspherical_energy, torch.compile(hyperspherical_energy, fullgraph=True, backend="aot_eager")):
        value = run(w, half_space=half_space, kernel=Linear(3.0))
        assert value.item() == pytest.approx(expected.item(), rel=1e-10)
        gradient, exact = (torch.autograd.grad(e, w, retain_graph=True)[0] for e in (value, expected))
        assert torch.allclose(gradient, exact, atol=1e-12)


@pytest.mark.untyped
def test_refuses_a_distance():
    with pytest.raises(ValueError, match="distance must be"):
        choose_kernel(2, "cosine")
    with pytest.raises(ValueError, match="kernel must be a Kernel object"):
        choose_kernel(2, "euclidean", "gaussian")
