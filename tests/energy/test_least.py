"""Bounds of the energy against configurations that are known, and against the solver."""

import math

import pytest
import torch

from hypersphere.energy import hyperspherical_energy, least_energy, minimize_energy, random_energy
from hypersphere.geometry import uniform


def mean_energy(rows):
    """Brute force in float64 over ordered pairs."""
    unit = rows.double() / rows.double().norm(dim=1, keepdim=True)
    gaps = (unit[:, None] - unit[None]).square().sum(-1)
    return (1 / gaps[~torch.eye(len(rows), dtype=torch.bool)]).mean().item()


@pytest.mark.parametrize("dim", [2, 3, 7])
def test_simplex_and_cross_polytope_reach_it(dim):
    simplex = torch.eye(dim + 1, dtype=torch.float64) - 1 / (dim + 1)
    cross = torch.cat([torch.eye(dim), -torch.eye(dim)])
    assert least_energy(dim + 1, dim) == pytest.approx(mean_energy(simplex), rel=1e-12)
    assert least_energy(2 * dim, dim) == pytest.approx(mean_energy(cross), rel=1e-12)


@pytest.mark.parametrize(("neurons", "dim"), [(5, 8), (12, 3), (20, 3), (40, 8)])
def test_nothing_is_below(neurons, dim):
    points, _ = minimize_energy(neurons, dim, s=2, starts=2)
    best = mean_energy(points)
    assert least_energy(neurons, dim) <= best * (1 + 1e-6)
    if dim == 8:
        assert least_energy(neurons, dim) > 0.95 * best


def test_random_energy_is_the_mean_of_random_layers():
    generator = torch.Generator().manual_seed(0)
    drawn = [hyperspherical_energy(uniform(300, 12, generator=generator)).item() for _ in range(8)]
    assert random_energy(300, 12) == pytest.approx(sum(drawn) / 8, rel=2e-3)
    assert math.isfinite(random_energy(10, 3))


@pytest.mark.parametrize("function", [least_energy, random_energy])
def test_refuses_one_neuron(function):
    with pytest.raises(ValueError, match="neurons and dim must be integers ≥ 2, got 1 and 3"):
        function(1, 3)
