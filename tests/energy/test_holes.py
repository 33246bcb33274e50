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
