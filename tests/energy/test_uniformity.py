import math

import pytest
import torch

from hypersphere.energy import covering_radius, hole_moment, hole_radii, minimize_energy, nearest_pairs, separation
from hypersphere.energy.uniformity import deepest_hole
from hypersphere.geometry import angle, uniform

pytest.importorskip("scipy")


def octahedron():
    return torch.cat([torch.eye(3), -torch.eye(3)])


class TestSeparation:
    def test_is_the_least_angle(self):
        w = torch.randn(30, 4)
        angles = angle(w, w, pairwise=True) + 10 * torch.eye(30)
        assert separation(w).item() == pytest.approx(angles.min().item(), rel=1e-5)

    def test_is_exact_for_neurons_that_nearly_coincide(self):
        w = torch.randn(30, 4)
        w[7] = 2 * w[3]
        w[7, 0] += 1e-5 * w[3].norm()
        expected = angle(w[3].double(), w[7].double()).item()
        assert separation(w).item() == pytest.approx(expected, rel=1e-6)

    def test_chunks_of_many_neurons(self):
        w = torch.randn(9000, 3)
        pairs, angles = nearest_pairs(w, 4)
        assert (angles.diff() >= 0).all()
        assert torch.allclose(angle(w[pairs[:, 0]], w[pairs[:, 1]]), angles, rtol=1e-3)
        assert (pairs[:, 0] < pairs[:, 1]).all()

    def test_as_many_pairs_as_there_are(self):
        assert nearest_pairs(torch.eye(3), 50)[0].tolist() in (
            [[0, 1], [0, 2], [1, 2]],
            [[0, 2], [0, 1], [1, 2]],
            [[1, 2], [0, 1], [0, 2]],
        )
        with pytest.raises(ValueError, match="count must be"):
            nearest_pairs(torch.eye(3), 0)


class TestCovering:
    @pytest.mark.untyped
    @pytest.mark.parametrize("n", [8, 100])
    def test_agrees_with_the_largest_hole(self, n):
        w = uniform(n, 3, generator=torch.Generator().manual_seed(n))
        exact = 2 * math.asin(hole_radii(w).max().item() / 2)
        assert covering_radius(w).item() == pytest.approx(exact, abs=1e-3)

    def test_known_radii(self):
        assert covering_radius(octahedron()).item() == pytest.approx(math.acos(3**-0.5), abs=1e-3)
        simplex = torch.eye(5, dtype=torch.float64) - 0.2
        basis = torch.linalg.svd(simplex).Vh[:4]
        assert covering_radius(simplex @ basis.T).item() == pytest.approx(math.acos(1 / 4), abs=1e-3)

    def test_never_exceeds_the_truth(self):
        w = uniform(40, 3, generator=torch.Generator().manual_seed(1))
        exact = 2 * math.asin(hole_radii(w.double()).max().item() / 2)
        assert all(covering_radius(w, probes=p).item() <= exact + 1e-5 for p in (1, 3))

    def test_refuses(self):
        with pytest.raises(ValueError, match="probes must be"):
            deepest_hole(torch.eye(3), probes=0)


class TestHoles:
    def test_the_octahedron(self):
        radii = hole_radii(octahedron())
        assert torch.allclose(radii, torch.full((8,), 2 * math.sin(math.acos(3**-0.5) / 2)))
        assert hole_moment(octahedron(), 2).item() == pytest.approx(8 * (2 - 2 / math.sqrt(3)), rel=1e-5)

    def test_coplanar_triangles_are_one_hole(self):
        cube = torch.tensor([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])
        assert hole_radii(cube).shape == (6,)

    def test_large_powers_see_the_largest_hole(self):
        w = uniform(20, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        assert hole_moment(w, 400).item() ** (1 / 400) == pytest.approx(hole_radii(w).max().item(), rel=1e-2)

    def test_the_number_of_holes_of_random_points(self):
        """Eq. F.42 with B_2 = 2: a triangulation of the sphere has 2N − 4 triangles."""
        assert len(hole_radii(uniform(200, 3, dtype=torch.float64))) == 396

    def test_the_expected_moment_of_random_points(self):
        """Eq. F.43 on the sphere (d = 2, κ₂ = 1/4, B₂ = 2), p = 2: mean over draws."""
        n, d, p = 400, 2, 2
        exact = (
            2
            * 0.25 ** (-p / d)
            * math.gamma(d + p / d)
            / math.gamma(d)
            * math.exp(math.lgamma(n + 1) - math.lgamma(n + p / d))
        )
        draws = [hole_moment(uniform(n, 3, dtype=torch.float64), p).item() for _ in range(20)]
        assert sum(draws) / 20 == pytest.approx(exact, rel=0.02)

    def test_least_energy_has_the_smaller_holes(self):
        assert hole_radii(minimize_energy(20, 3, starts=2)[0]).max() < hole_radii(uniform(20, 3)).max()

    @pytest.mark.parametrize(
        ("weight", "message"),
        [(torch.randn(4, 9), "at most 8"), (torch.eye(3), "more neurons than"), (torch.ones(5, 3), "do not span")],
    )
    def test_refuses(self, weight, message):
        with pytest.raises(ValueError, match=message):
            hole_radii(weight)
        with pytest.raises(ValueError, match="p must be"):
            hole_moment(octahedron(), -1)
