import pytest
import torch

from hypersphere.energy import riesz_points
from hypersphere.energy.kernels import Riesz
from hypersphere.energy.point_symmetry import draw_orbits, rotation_symmetries
from hypersphere.energy.riesz_points import find_riesz_points, orbit_objective, point_objective

pytestmark = pytest.mark.untyped  # type checks take longer than the computations


@pytest.mark.parametrize(("n", "dim", "half_space"), [(12, 3, False), (13, 3, False), (10, 3, True), (12, 4, False)])
@pytest.mark.parametrize("s", [0, 1, 3])
def test_orbits_have_the_energy_of_their_whole_arrangement(n, dim, half_space, s):
    kernel = Riesz(s)
    for symmetry in rotation_symmetries(n, dim, half_space):
        orbits = draw_orbits(2, n, symmetry, torch.Generator().manual_seed(1)) * 1.5
        energy, gradient = orbit_objective(kernel, half_space, symmetry)(orbits.flatten(1))
        expected, slopes = point_objective(kernel, half_space, dim)(symmetry.expand(orbits).flatten(1))
        assert torch.allclose(energy, expected)
        first = symmetry.order * slopes.view(2, n, dim)[:, : orbits.shape[1]]  # a step moves all points of the orbit
        assert torch.allclose(gradient.view(orbits.shape), first)


@pytest.mark.parametrize("half_space", [False, True])
def test_the_gradient_is_the_derivative(half_space):
    symmetry = rotation_symmetries(9, 3, half_space)[0]
    objective = orbit_objective(Riesz(1), half_space, symmetry)
    x = draw_orbits(1, 9, symmetry, torch.Generator().manual_seed(3)).flatten(1)
    for k in range(x.shape[1]):
        step = torch.zeros_like(x)
        step[:, k] = 1e-6
        difference = (objective(x + step)[0] - objective(x - step)[0]) / 2e-6
        assert torch.allclose(objective(x)[1][:, k], difference, rtol=1e-5, atol=1e-6)


def test_symmetric_starts_do_no_harm_to_few_points():
    _, energy = find_riesz_points(12, 3, Riesz(1), False, starts=1, hops=1, tolerance=1e-9, steps=500, seed=0)
    assert energy.item() == pytest.approx(49.165253058, abs=1e-8)


@pytest.mark.parametrize(
    ("energies", "agreed"),
    [
        ([[1.0] * 6, [1.0, 2.0], [1.0 + 1e-9, 3.0]], True),
        ([[1.0] * 6, [1.0], [1.0]], True),
        ([[1.0] * 7, [2.0], [1.0]], False),  # only two searches reach the least energy
        ([[1.0] * 9, [1.0, 2.0], [2.0]], False),  # only two searches reach the least energy
        ([[1.0] * 5, [1.0], [1.0]], False),  # only seven starts reach it
        ([[1.0] * 6, [1.0], [1.0, 0.9999]], False),  # only one start reaches it
    ],
)
def test_a_search_ends_when_starts_of_several_kinds_agree(energies, agreed):
    assert riesz_points._agree([torch.tensor(values, dtype=torch.double) for values in energies]) is agreed


def test_agreement_of_starts_skips_the_hops(monkeypatch):
    monkeypatch.setattr(riesz_points, "hop_basins", None)  # called only if the starts do not agree
    options = {"starts": 24, "hops": 1, "tolerance": 1e-9, "steps": 500, "seed": 0}
    assert find_riesz_points(12, 3, Riesz(1), False, **options)[1].item() == pytest.approx(49.165253058, abs=1e-8)
