import math

import pytest
import torch

from hypersphere.energy import hyperspherical_energy, minimize_energy, refine_, separation
from hypersphere.energy.solver import smallest_angle


@pytest.mark.untyped  # type checks take longer than the computations
@pytest.mark.parametrize(
    ("n", "published"),
    [
        (4, 3.674234614),
        (5, 6.474691495),
        (8, 19.675287861),
        (12, 49.165253058),
        (20, 150.881568334),
        (32, 412.261274651),
        pytest.param(50, 1055.182314726, marks=pytest.mark.slow),
    ],
)
def test_thomson(n, published):
    points, energy = minimize_energy(n, 3)
    assert energy.item() == pytest.approx(published, abs=1e-8)
    assert hyperspherical_energy(points, 1, reduction="sum").item() / 2 == pytest.approx(energy.item(), rel=1e-12)
    assert torch.allclose(points.norm(dim=1), torch.ones(n, dtype=torch.float64))


@pytest.mark.parametrize(("n", "dim"), [(3, 2), (4, 5), (6, 5), (5, 9)])
@pytest.mark.parametrize("s", [0, 1, 2.5])
def test_the_simplex(n, dim, s):
    pairs, distance = n * (n - 1) / 2, (2 * n / (n - 1)) ** 0.5
    assert minimize_energy(n, dim, s, starts=4)[1].item() == pytest.approx(
        pairs * (distance**-s if s else -math.log(distance)), rel=1e-10
    )


@pytest.mark.parametrize("dim", [3, 5])
@pytest.mark.parametrize("s", [1, 2])
def test_the_cross_polytope_in_either_space(dim, s):
    energy = 2 * dim * (dim - 1) * 2 ** (-s / 2) + dim * 2.0**-s
    assert minimize_energy(2 * dim, dim, s, starts=8)[1].item() == pytest.approx(energy, rel=1e-10)
    assert minimize_energy(dim, dim, s, half_space=True, starts=8)[1].item() == pytest.approx(energy, rel=1e-10)


def test_whyte():
    """The product of the distances of the icosahedron's vertices: 30 edges, 30 second neighbors, 6 diameters."""
    near, far = 2 * math.sin(math.atan(2) / 2), 2 * math.sin((math.pi - math.atan(2)) / 2)
    assert minimize_energy(12, 3, 0)[1].item() == pytest.approx(
        -30 * math.log(near) - 30 * math.log(far) - 6 * math.log(2), rel=1e-10
    )


def test_points_on_a_circle_are_equally_spaced():
    points, _ = minimize_energy(7, 2, 1, starts=4)
    assert separation(points).item() == pytest.approx(2 * math.pi / 7, rel=1e-6)


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("n", "degrees"),
    [
        (12, 63.4349488),
        pytest.param(13, 57.1367031, marks=pytest.mark.slow),
        pytest.param(14, 55.67057, marks=pytest.mark.slow),
        pytest.param(35, 35.3198076, marks=pytest.mark.slow),
        pytest.param(44, 31.983423, marks=pytest.mark.slow),
        pytest.param(60, 27.19283, marks=pytest.mark.slow),
        pytest.param(70, 25.17092, marks=pytest.mark.slow),
        pytest.param(100, 21.031202, marks=pytest.mark.slow),
    ],
)
def test_tammes(n, degrees):
    quick = {"starts": 32, "hops": 0} if n == 12 else {}
    points, angle = minimize_energy(n, 3, math.inf, **quick)
    assert math.degrees(angle) == pytest.approx(degrees, abs=6e-8)
    assert smallest_angle(points).item() == angle.item()


@pytest.mark.slow
@pytest.mark.untyped
def test_two_hundred_points_reach_the_best_known():
    assert minimize_energy(200, 3)[1].item() == pytest.approx(18438.842717530, abs=1e-8)


@pytest.mark.untyped
def test_hops_lower_the_energy_and_repeat():
    options = {"starts": 1, "tolerance": 1e-6, "seed": 2}
    alone, (points, energy) = minimize_energy(30, 3, **options)[1], minimize_energy(30, 3, hops=2, **options)
    assert energy <= alone * (1 + 1e-9)
    assert torch.equal(points, minimize_energy(30, 3, hops=2, **options)[0])


def test_a_seed_is_enough_to_repeat():
    assert torch.equal(minimize_energy(9, 4, seed=3, starts=2)[0], minimize_energy(9, 4, seed=3, starts=2)[0])


@pytest.mark.untyped
def test_theorem_2_grows_as_n_squared():
    """s = 1, d = 2: ε(N) ~ N²·I_s with I_s = 1 for the Coulomb energy of the uniform sphere."""
    numbers = [16, 32, 64, 128]
    energies = [2 * minimize_energy(n, 3, 1, starts=1, hops=0, tolerance=1e-5)[1].item() for n in numbers]
    slope = torch.linalg.lstsq(
        torch.tensor([[1, math.log(n), n**-0.5] for n in numbers], dtype=torch.float64),
        torch.tensor(energies, dtype=torch.float64).log(),
    ).solution[1]
    assert slope.item() == pytest.approx(2, abs=0.02)
    assert energies[-1] / 128**2 == pytest.approx(1, abs=0.1)


@pytest.mark.untyped
def test_theorem_2_grows_faster_for_a_larger_power():
    """s = 4, d = 2: ε(N) ~ N^{1 + s/d} = N³."""
    numbers = [16, 32, 64]
    energies = [minimize_energy(n, 3, 4, starts=1, tolerance=1e-5)[1].item() for n in numbers]
    assert math.log2(energies[2] / energies[1]) == pytest.approx(3, abs=0.25)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 1}, "n ≥ 2"),
        ({"dim": 1}, "dim ≥ 2"),
        ({"starts": 0}, "starts must"),
        ({"hops": -1}, "hops must"),
        ({"steps": 0}, "steps must"),
        ({"tolerance": 0.0}, "tolerance must"),
        ({"s": -1}, "s must be"),
    ],
)
def test_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        minimize_energy(**({"n": 4, "dim": 3} | options))


class TestRefine:
    @pytest.mark.parametrize("half_space", [False, True])
    @pytest.mark.parametrize("distance", ["euclidean", "angular"])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
    def test_lowers_the_energy_and_keeps_the_lengths(self, half_space, distance, dtype):
        w = (torch.randn(8, 2, 2) * 3).to(dtype)
        before, lengths, address = (
            hyperspherical_energy(w, 2, half_space, distance),
            w.flatten(1).norm(dim=1),
            w.data_ptr(),
        )
        assert refine_(w, half_space=half_space, distance=distance) is w
        assert w.data_ptr() == address
        assert hyperspherical_energy(w, 2, half_space, distance) < before
        assert torch.allclose(w.flatten(1).norm(dim=1), lengths, rtol=1e-2 if dtype == torch.bfloat16 else 1e-5)

    def test_works_on_a_parameter_and_leaves_zero_rows(self):
        layer = torch.nn.Linear(3, 6)
        layer.weight.data[2] = 0
        refine_(layer.weight)
        assert (layer.weight[2] == 0).all()
        assert torch.isfinite(layer.weight).all()

    def test_reaches_the_simplex(self):
        w = torch.randn(4, 3, dtype=torch.float64)
        refine_(w, s=1, tolerance=1e-12)
        assert hyperspherical_energy(w, 1, reduction="sum").item() / 2 == pytest.approx(3.674234614, abs=1e-8)


def test_smallest_angle_of_lines():
    points = torch.tensor([[1.0, 0.0], [-1.0, 0.1], [0.0, 1.0]])
    assert smallest_angle(points, half_space=True).item() == pytest.approx(math.atan(0.1), rel=1e-5)
    assert smallest_angle(points).item() == pytest.approx(math.pi / 2 - math.atan(0.1), rel=1e-5)
