import math

import pytest
import torch
from scipy.integrate import quad
from scipy.special import gammaln

from hypersphere.geometry import normalize, uniform
from hypersphere.objectives import PowerSpherical


def area(dim):
    return math.exp(math.log(2) + dim / 2 * math.log(math.pi) - gammaln(dim / 2))


def over_the_sphere(function, dim):
    """∫ of a function of the cosine over the sphere, by its angle."""
    belt = 2 * math.pi if dim == 3 else 2.0 if dim == 2 else area(dim - 1)
    return belt * quad(lambda a: function(math.cos(a)) * math.sin(a) ** (dim - 2), 0, math.pi, limit=200)[0]


@pytest.mark.parametrize("dim", [2, 3, 20])
@pytest.mark.parametrize("kappa", [0.0, 1.5, 40.0])
def test_density_entropy_and_divergence_by_quadrature(dim, kappa):
    axis = torch.zeros(dim, dtype=torch.float64)
    axis[0] = 1
    q = PowerSpherical(axis, torch.tensor(kappa, dtype=torch.float64))

    def log_density(c):
        x = torch.zeros(dim, dtype=torch.float64)
        x[0], x[1] = c, math.sqrt(max(0.0, 1 - c * c))
        return q.log_prob(x).item()

    assert over_the_sphere(lambda c: math.exp(log_density(c)), dim) == pytest.approx(1, rel=1e-7)
    entropy = over_the_sphere(lambda c: -log_density(c) * math.exp(log_density(c)), dim)
    assert q.entropy().item() == pytest.approx(entropy, rel=1e-6)
    assert q.kl_to_uniform().item() == pytest.approx(math.log(area(dim)) - entropy, rel=1e-6, abs=1e-7)
    mean = over_the_sphere(lambda c: c * math.exp(log_density(c)), dim)
    assert q.mean[0].item() == pytest.approx(mean, abs=1e-7)


@pytest.mark.parametrize("dim", [2, 3, 50])
def test_samples_have_the_mean_and_the_spread(dim):
    torch.manual_seed(0)
    mu = normalize(torch.randn(dim, dtype=torch.float64))
    q = PowerSpherical(mu, torch.tensor(7.0, dtype=torch.float64))
    x = q.sample((40_000,))
    assert torch.allclose(x.norm(dim=1), torch.ones(1, dtype=torch.float64))
    assert (x.mean(0) - q.mean).norm() < 5 / math.sqrt(40_000)
    assert -q.log_prob(x).mean().item() == pytest.approx(q.entropy().item(), abs=0.03)


def test_opposite_and_first_axis_are_reached():
    for sign in (1.0, -1.0):
        mu = torch.tensor([sign, 0.0, 0.0])
        x = PowerSpherical(mu, torch.tensor(1e4)).sample((200,))
        assert (x @ mu > 0.99).all()


def test_gradients_reach_mean_and_concentration():
    loc = torch.randn(5, 4, requires_grad=True)
    kappa = torch.full((5,), 3.0, requires_grad=True)
    q = PowerSpherical(loc, kappa)
    ((q.rsample() * uniform(5, 4)).sum() + q.kl_to_uniform().sum() + q.log_prob(uniform(5, 4)).sum()).backward()
    assert all(torch.isfinite(t.grad).all() and (t.grad != 0).any() for t in (loc, kappa))


def test_expands_and_refuses():
    q = PowerSpherical(torch.tensor([0.0, 2.0]), torch.tensor(1.0)).expand(torch.Size([3]))
    assert q.sample().shape == (3, 2)
    with pytest.raises(ValueError, match="concentration must be finite numbers ≥ 0"):
        PowerSpherical(torch.eye(3), torch.full((3,), -1.0))
    with pytest.raises(ValueError, match="loc must be directions"):
        PowerSpherical(torch.ones(3, 1), torch.ones(3))
