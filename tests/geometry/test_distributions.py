import math

import pytest
import scipy.integrate
import scipy.special
import scipy.stats
import torch

from hypersphere.geometry import PowerSpherical, VonMisesFisher, normalize
from hypersphere.geometry.distributions import log_sphere_area

KINDS = [PowerSpherical, VonMisesFisher]


def double(*values):
    return torch.tensor(values, dtype=torch.float64)


def make(kind, dim, kappa):
    mean = torch.zeros(1, dim, dtype=torch.float64)
    mean[0, 0] = 1
    return kind(mean, double(kappa))


def integrate(distribution, function):
    """∫ p(x)·function(log p, t) over the sphere by quadrature: a ring of cosine t has area·(1 − t²)^{(d−3)/2}."""
    dim = distribution.dim
    ring = math.exp(log_sphere_area(dim - 1)) if dim > 2 else 2.0

    def integrand(angle):
        x = torch.zeros(1, dim, dtype=torch.float64)
        x[0, 0], x[0, 1] = math.cos(angle), math.sin(angle)
        log_p = float(distribution.log_density(x))
        return ring * math.sin(angle) ** (dim - 2) * math.exp(log_p) * function(log_p, math.cos(angle))

    return scipy.integrate.quad(integrand, 0, math.pi, epsabs=1e-12, limit=200)[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dim", "kappa"), [(2, 3.0), (3, 0.0), (5, 0.4), (20, 50.0)])
def test_density_entropy_divergence_and_mean_by_quadrature(kind, dim, kappa):
    p = make(kind, dim, kappa)
    assert integrate(p, lambda log_p, t: 1.0) == pytest.approx(1, rel=1e-8)
    entropy = integrate(p, lambda log_p, t: -log_p)
    assert float(p.entropy()) == pytest.approx(entropy, rel=1e-8, abs=1e-10)
    assert float(p.divergence_from_uniform()) == pytest.approx(log_sphere_area(dim) - entropy, rel=1e-7, abs=1e-9)
    assert float(p.mean_cosine()) == pytest.approx(integrate(p, lambda log_p, t: t), rel=1e-8, abs=1e-10)


@pytest.mark.parametrize(("dim", "kappa"), [(3, 2.5), (10, 40.0), (300, 900.0)])
def test_von_mises_fisher_agrees_with_scipy(dim, kappa):
    p, x = make(VonMisesFisher, dim, kappa), normalize(torch.randn(5, dim, dtype=torch.float64))
    reference = scipy.stats.vonmises_fisher(p.mean[0].numpy(), kappa)
    torch.testing.assert_close(p.log_density(x), torch.from_numpy(reference.logpdf(x.numpy())), rtol=1e-9, atol=1e-7)
    assert float(p.entropy()) == pytest.approx(float(reference.entropy()), rel=1e-8)


@pytest.mark.parametrize("kappa", [0.0, 1.0, 300.0])
def test_power_spherical_agrees_with_the_beta_distribution_in_high_dimensions(kappa):
    dim = 512
    p, beta = make(PowerSpherical, dim, kappa), (dim - 1) / 2
    reference = scipy.stats.beta(beta + kappa, beta)
    x = normalize(torch.randn(4, dim, dtype=torch.float64))
    t = x[:, 0].numpy()
    # p(x) = density of t / area of its ring
    ring = log_sphere_area(dim - 1) + (dim - 3) / 2 * torch.log1p(-(torch.from_numpy(t) ** 2))
    expected = torch.from_numpy(reference.logpdf((1 + t) / 2)) - math.log(2) - ring
    torch.testing.assert_close(p.log_density(x), expected, rtol=1e-9, atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dim", "kappa"), [(2, 1.5), (3, 8.0), (16, 30.0)])
def test_samples_follow_the_density(kind, dim, kappa):
    mean = normalize(torch.randn(1, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))
    p = kind(mean, double(kappa))
    x = p.sample(4000, generator=torch.Generator().manual_seed(2))[:, 0]
    torch.testing.assert_close(x.norm(dim=1), torch.ones(4000, dtype=torch.float64))
    grid = torch.linspace(-1, 1, 20001, dtype=torch.float64)
    angles = torch.linspace(math.pi, 0, 20001, dtype=torch.float64)  # cosines from −1 to 1
    points = torch.zeros(len(grid), dim, dtype=torch.float64)
    points[:, 0], points[:, 1] = angles.cos(), angles.sin()
    density = make(kind, dim, kappa).log_density(points).exp() * angles.sin() ** (dim - 2)
    steps = (density[1:] + density[:-1]) / 2
    total = torch.cat([torch.zeros(1, dtype=torch.float64), steps.cumsum(0)])
    cdf = (total / total[-1]).numpy()
    cosines = (x @ mean[0]).numpy()
    result = scipy.stats.kstest(cosines, lambda t: scipy.interpolate.interp1d(angles.cos().numpy(), cdf)(t))
    assert result.pvalue > 0.01
    rest = normalize(x - (x @ mean[0])[:, None] * mean)  # uniform around the mean
    assert rest.mean(0).norm() < 4 / 4000**0.5


@pytest.mark.parametrize(("kind", "tolerance"), [(PowerSpherical, 0.02), (VonMisesFisher, 0.02)])
def test_gradients_of_samples_are_those_of_the_expectation(kind, tolerance):
    """d E[μ·x]/dκ and d E[a·x]/dμ through samples, against the closed form of the mean."""
    mean = double(0.6, 0.8, 0.0)[None].requires_grad_()
    kappa = double(4.0).requires_grad_()
    axis = double(0.0, 1.0, 0.0)
    x = kind(mean, kappa).sample(40000, generator=torch.Generator().manual_seed(0))
    found = torch.autograd.grad((x @ axis).mean(), (mean, kappa))
    expected = torch.autograd.grad((kind(mean, kappa).mean_cosine() * (normalize(mean) @ axis)).sum(), (mean, kappa))
    for own, exact in zip(found, expected, strict=True):
        torch.testing.assert_close(own, exact, rtol=tolerance, atol=0.003)


@pytest.mark.parametrize(("dim", "kappa"), [(2, 1.5), (3, 8.0), (16, 0.0), (40, 300.0)])
def test_the_slope_of_a_cosine_keeps_its_rank(dim, kappa):
    """F(t + dt; κ + dκ) = F(t; κ), with F by quadrature."""

    def rank(t, k):
        density = lambda a: math.exp(k * (math.cos(a) - 1)) * math.sin(a) ** (dim - 2)
        tail, head = (
            scipy.integrate.quad(density, *ends, epsabs=1e-14, epsrel=1e-12, limit=200)[0]
            for ends in ((math.acos(t), math.pi), (0, math.acos(t)))
        )
        return tail / (tail + head)

    p = make(VonMisesFisher, dim, kappa)
    spread = 2 / (dim + kappa) ** 0.5 if dim > 3 else 0.5
    step = 1e-4 * (1 + kappa)
    for t in (float(p.mean_cosine()) + spread * place for place in (-0.9, -0.2, 0.0, 0.2)):
        slope = float(p._compute_slope_of_cosine(double(t), double(kappa)))
        assert slope > 0
        assert rank(t + slope * step, kappa + step) == pytest.approx(rank(t, kappa), rel=2e-5)
        assert abs(rank(t, kappa + step) - rank(t, kappa)) > 1e-4 * step * rank(t, kappa)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_density_and_divergence(kind):
    mean, x = torch.randn(3, 4, dtype=torch.float64), normalize(torch.randn(3, 4, dtype=torch.float64))
    kappa = double(0.5, 3.0, 40.0)
    inputs = (mean.requires_grad_(), kappa.requires_grad_())
    assert torch.autograd.gradcheck(lambda m, k: kind(m, k).log_density(x), inputs)
    assert torch.autograd.gradcheck(lambda m, k: kind(m, k).divergence_from_uniform(), inputs)


@pytest.mark.parametrize("kind", KINDS)
def test_without_concentration_it_is_uniform(kind):
    p = kind(torch.randn(2, 6), torch.zeros(2))
    x = normalize(torch.randn(2, 6))
    assert torch.allclose(p.log_density(x), torch.full((2,), -log_sphere_area(6)), atol=1e-5)
    assert p.divergence_from_uniform().abs().max() < 1e-5
    assert p.sample(3).shape == (3, 2, 6)
    assert p.sample().shape == (2, 6)


@pytest.mark.parametrize("kind", KINDS)
def test_large_concentrations_and_the_first_axis(kind):
    p = kind(torch.eye(8)[:1], torch.tensor([1e5]))
    x = p.sample(50)
    assert x.isfinite().all()
    assert (x[..., 0] > 0.999).all()
    assert p.log_density(x).isfinite().all()


def test_refuses_shapes():
    with pytest.raises(ValueError, match=r"mean must have shape \(…, d\)"):
        PowerSpherical(torch.randn(2, 3), torch.ones(3))
