import itertools
import math

import pytest
import torch

from hypersphere.energy import covering_radius, hole_radii
from hypersphere.energy.cover import deepest_hole
from hypersphere.geometry import uniform

pytest.importorskip("scipy")


def octahedron():
    return torch.cat([torch.eye(3), -torch.eye(3)])


def by_triples(w):
    """The largest empty cap with one, two opposite or three points of S² on its rim, by trying all of them."""
    x = torch.nn.functional.normalize(w.double(), dim=1)
    best = 0.0
    for i, j, k in itertools.combinations(range(len(x)), 3):
        normal = torch.linalg.cross(x[j] - x[i], x[k] - x[i])
        if normal.norm() < 1e-12:
            continue
        for u in (normal, -normal, -x[i], -x[j], -x[k], -x[i] - x[j], -x[i] - x[k], -x[j] - x[k]):
            nearest = math.acos(min(1.0, max(-1.0, (x @ u / u.norm()).max().item())))
            best = max(best, nearest)
    return best


@pytest.mark.parametrize("n", [4, 8, 14])
def test_is_exact_in_three_dimensions(n):
    w = uniform(n, 3, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    assert covering_radius(w).item() == pytest.approx(by_triples(w), abs=1e-9)


@pytest.mark.parametrize(("n", "dim"), [(40, 2), (300, 3), (100, 4), (60, 6)])
def test_is_the_largest_hole(n, dim):
    w = uniform(n, dim, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    assert covering_radius(w).item() == pytest.approx(hole_radii(w).max().item(), rel=1e-12)


@pytest.mark.parametrize(("n", "dim"), [(2, 5), (7, 7), (12, 20)])
def test_neurons_of_a_half_space_are_exact_in_any_dimension(n, dim):
    """No direction is farther than the antipode of the shortest point of the hull, and many random ones are nearer."""
    w = uniform(n, dim, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    exact = covering_radius(w, method="exact").item()
    probed = covering_radius(w, probes=3, method="probes").item()
    assert probed <= exact + 1e-12
    assert exact == pytest.approx(probed, abs=2e-3)


def test_known_radii():
    assert covering_radius(octahedron()).item() == pytest.approx(math.acos(3**-0.5), abs=1e-6)
    simplex = torch.eye(5, dtype=torch.float64) - 0.2
    basis = torch.linalg.svd(simplex).Vh[:4]
    assert covering_radius(simplex @ basis.T).item() == pytest.approx(math.acos(1 / 4), abs=1e-9)
    assert covering_radius(simplex).item() == pytest.approx(math.pi / 2)  # five points of a hyperplane through 0
    assert covering_radius(torch.ones(4, 3)).item() == pytest.approx(math.pi, abs=1e-3)


def test_the_bound_never_exceeds_the_truth():
    w = uniform(40, 3, generator=torch.Generator().manual_seed(1))
    exact = hole_radii(w.double()).max().item()
    assert all(covering_radius(w, probes=p, method="probes").item() <= exact + 1e-5 for p in (1, 3))


def test_where_no_hull_can_be_had_the_bound_is_given_or_refused():
    w = uniform(200, 12, generator=torch.Generator().manual_seed(1))
    assert covering_radius(w, probes=1) == covering_radius(w, probes=1, method="probes")
    with pytest.raises(ValueError, match="200 neurons in 12 dimensions is too large"):
        covering_radius(w, method="exact")


@pytest.mark.untyped
def test_refuses():
    with pytest.raises(ValueError, match="probes must be"):
        deepest_hole(torch.eye(3), probes=0)
    with pytest.raises(ValueError, match="method must be"):
        covering_radius(torch.eye(3), method="hull")
