import itertools
import math

import pytest
import torch

from hypersphere.energy import (
    cap_constant,
    covering_radius,
    expected_hole_moment,
    facet_constant,
    hole_moment,
    hole_radii,
    minimize_energy,
)
from hypersphere.energy.holes import deepest_hole
from hypersphere.geometry import uniform

pytest.importorskip("scipy")


def octahedron():
    return torch.cat([torch.eye(3), -torch.eye(3)])


def test_the_octahedron():
    radii = hole_radii(octahedron())
    assert torch.allclose(radii, torch.full((8,), math.acos(3**-0.5)))
    assert hole_moment(octahedron(), 2).item() == pytest.approx(8 * (2 - 2 / math.sqrt(3)), rel=1e-5)


def test_coplanar_triangles_are_one_hole():
    cube = torch.tensor([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])
    assert hole_radii(cube).shape == (6,)


def test_large_powers_see_the_largest_hole():
    w = uniform(20, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert hole_moment(w, 400).item() ** (1 / 400) == pytest.approx(
        2 * math.sin(covering_radius(w).item() / 2), rel=1e-2
    )


def test_the_number_of_holes_of_random_points():
    """Eq. F.42 with B_2 = 2: a triangulation of the sphere has 2N − 4 triangles."""
    assert len(hole_radii(uniform(200, 3, dtype=torch.float64))) == 396


def test_the_expected_moment_of_random_points():
    """Eq. F.43 on the sphere (d = 2, κ₂ = 1/4, B₂ = 2), p = 2: mean over draws."""
    n, d, p = 400, 2, 2
    exact = expected_hole_moment(n, d, p)
    draws = [hole_moment(uniform(n, 3, dtype=torch.float64), p).item() for _ in range(20)]
    assert sum(draws) / 20 == pytest.approx(exact, rel=0.02)


def test_least_energy_has_the_smaller_holes():
    assert hole_radii(minimize_energy(20, 3, starts=2)[0]).max() < hole_radii(uniform(20, 3)).max()


@pytest.mark.parametrize(
    ("weight", "message"),
    [(torch.randn(4, 9), "at most 8"), (torch.eye(3), "more neurons than"), (torch.ones(5, 3), "do not span")],
)
def test_refuses(weight, message):
    with pytest.raises(ValueError, match=message):
        hole_radii(weight)
    with pytest.raises(ValueError, match="p must be"):
        hole_moment(octahedron(), -1)


def test_the_constants_follow_their_recursion():
    """κ₁ = 1/π and κ_d = 1/(2πdκ_{d−1}), as below eq. F.41."""
    kappa = 1 / math.pi
    for d in range(2, 30):
        kappa = 1 / (2 * math.pi * d * kappa)
        assert cap_constant(d) == pytest.approx(kappa, rel=1e-12)
    areas = [2, 2 * math.pi, 4 * math.pi, 2 * math.pi**2]
    assert cap_constant(3) == pytest.approx(areas[2] / areas[3] / 3, rel=1e-12)


@pytest.mark.parametrize("d", [2, 3])
def test_the_constant_counts_the_facets_of_random_points(d):
    n = 5000
    facets = len(hole_radii(uniform(n, d + 1, dtype=torch.float64, generator=torch.Generator().manual_seed(d))))
    assert facets / n == pytest.approx(facet_constant(d), rel=0.02)


@pytest.mark.parametrize(
    "call", [lambda: cap_constant(0), lambda: facet_constant(0), lambda: expected_hole_moment(9, 2, -1)]
)
def test_the_constants_refuse(call):
    with pytest.raises(ValueError, match="got"):
        call()


pytest.importorskip("scipy")


def by_triples(w):
    """Return the radius of the largest empty cap on S² by trying all caps with one, two or three points on the rim."""
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
    """The exact hole is opposite the hull's point nearest to 0, and at least as large as all probed ones."""
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


def test_without_a_hull_the_bound_is_returned_or_refused():
    w = uniform(200, 12, generator=torch.Generator().manual_seed(1))
    assert covering_radius(w, probes=1) == covering_radius(w, probes=1, method="probes")
    with pytest.raises(ValueError, match="200 neurons in 12 dimensions is too large"):
        covering_radius(w, method="exact")


@pytest.mark.untyped
def test_covering_refuses():
    with pytest.raises(ValueError, match="probes must be"):
        deepest_hole(torch.eye(3), probes=0)
    with pytest.raises(ValueError, match="method must be"):
        covering_radius(torch.eye(3), method="hull")


@pytest.mark.parametrize(("n", "dim"), [(9, 3), (5, 5), (30, 4)])
def test_the_exact_radius_is_differentiable(n, dim):
    """9 and 30 neurons use the convex hull; 5 neurons in 5 dimensions lie in a half space."""
    generator = torch.Generator().manual_seed(n)
    w = uniform(n, dim, generator=generator, dtype=torch.float64).requires_grad_()
    (gradient,) = torch.autograd.grad(covering_radius(w, method="exact"), w)
    direction = torch.randn(n, dim, dtype=torch.float64, generator=generator)
    ahead, behind = (covering_radius(w.detach() + h * direction, method="exact") for h in (1e-6, -1e-6))
    assert (gradient * direction).sum().item() == pytest.approx(((ahead - behind) / 2e-6).item(), rel=1e-4, abs=1e-7)
