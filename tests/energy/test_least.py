"""Bounds of the energy against configurations that are known, and against the solver."""

import pytest
import torch

from hypersphere.energy import least_energy, minimize_energy


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


def test_refuses_one_neuron():
    with pytest.raises(ValueError, match="neurons and dim must be integers ≥ 2, got 1 and 3"):
        least_energy(1, 3)
