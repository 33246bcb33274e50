import math

import pytest
import torch

from hypersphere.energy import AngularRiesz, Gaussian, Kernel, Riesz, energy_lower_bound, minimize_energy
from hypersphere.energy.hyperspherical import mean_energies
from hypersphere.energy.reference_energies import random_energy
from hypersphere.geometry import uniform

CASES = [(Riesz(2), 16), (Riesz(1), 9), (Riesz(0), 64), (AngularRiesz(1), 12), (Gaussian(2), 5)]


@pytest.mark.parametrize("half_space", [False, True])
@pytest.mark.parametrize(("kernel", "dim"), CASES, ids=repr)
def test_agrees_with_random_draws(kernel: Kernel, dim: int, half_space: bool):
    draws = uniform(1000 * 20, dim, generator=torch.Generator().manual_seed(0)).double().view(1000, 20, dim)
    energies = mean_energies(draws, kernel, half_space)
    found = random_energy(20, dim, kernel, half_space)
    assert found.mean == pytest.approx(energies.mean().item(), abs=5 * found.std / math.sqrt(1000))
    assert found.std == pytest.approx(energies.std().item(), rel=0.15)


@pytest.mark.parametrize("dim", [4, 7, 64, 4608, 100_000])
def test_the_mean_of_s_2_is_known(dim: int):
    assert random_energy(10, dim, Riesz(2)).mean == pytest.approx((dim - 2) / (2 * (dim - 3)), rel=1e-9)


def test_the_deviation_is_infinite_if_close_pairs_dominate_the_variance():
    assert random_energy(10, 5, Riesz(2)).std == math.inf
    assert math.isfinite(random_energy(10, 6, Riesz(2)).std)


@pytest.mark.parametrize(("neurons", "dim"), [(1, 4), (4, 1)])
def test_refuses(neurons: int, dim: int):
    with pytest.raises(ValueError, match="neurons and dim must be integers ≥ 2"):
        random_energy(neurons, dim, Riesz(2))


def mean_energy(rows):
    """Brute force in float64 over ordered pairs."""
    unit = rows.double() / rows.double().norm(dim=1, keepdim=True)
    gaps = (unit[:, None] - unit[None]).square().sum(-1)
    return (1 / gaps[~torch.eye(len(rows), dtype=torch.bool)]).mean().item()


@pytest.mark.parametrize("dim", [2, 3, 7])
def test_simplex_and_cross_polytope_reach_it(dim):
    simplex = torch.eye(dim + 1, dtype=torch.float64) - 1 / (dim + 1)
    cross = torch.cat([torch.eye(dim), -torch.eye(dim)])
    assert energy_lower_bound(dim + 1, dim) == pytest.approx(mean_energy(simplex), rel=1e-12)
    assert energy_lower_bound(2 * dim, dim) == pytest.approx(mean_energy(cross), rel=1e-12)


@pytest.mark.parametrize(("neurons", "dim"), [(5, 8), (12, 3), (20, 3), (40, 8)])
def test_nothing_is_below(neurons, dim):
    points, _ = minimize_energy(neurons, dim, s=2, starts=2)
    best = mean_energy(points)
    assert energy_lower_bound(neurons, dim) <= best * (1 + 1e-6)
    if dim == 8:
        assert energy_lower_bound(neurons, dim) > 0.95 * best


def test_refuses_one_neuron():
    with pytest.raises(ValueError, match="neurons and dim must be integers ≥ 2, got 1 and 3"):
        energy_lower_bound(1, 3)
