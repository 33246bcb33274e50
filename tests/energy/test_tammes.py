import math

import pytest
import torch

from hypersphere.energy.tammes import find_tammes_points

pytestmark = pytest.mark.untyped  # type checks take longer than the computations

# Sloane's tables of spherical codes, to their seven digits.
SLOANE = {6: 90.0, 8: 74.8584922, 9: 70.5287794, 15: 53.6578501, 21: 45.6132231, 28: 39.3551436, 33: 36.254553}


def degrees(points):
    cos = points @ points.T - 2 * torch.eye(len(points), dtype=points.dtype)
    return math.degrees(math.acos(cos.max().item()))


@pytest.mark.parametrize("n", [6, 8, *(pytest.param(n, marks=pytest.mark.slow) for n in sorted(SLOANE) if n > 8)])
def test_the_contacts_of_the_best_are_exact(n):
    points = find_tammes_points(n, 3, False, starts=32, hops=16 if n > 8 else 0)
    assert degrees(points) == pytest.approx(SLOANE[n], abs=6e-8)
    cos = (points @ points.T).masked_select(torch.ones(n, n).triu(1).bool())
    touching = cos > cos.max() - 1e-6
    assert touching.sum() >= n  # the contacts are exact up to rounding
    assert cos.max() - cos[touching].min() < 1e-13


def test_five_points_have_many_best_arrangements():
    """The best angle is a right angle; the contacts are not determined."""
    assert degrees(find_tammes_points(5, 3, False, starts=32, hops=0)) == pytest.approx(90, abs=1e-10)


def test_lines_in_half_space():
    """Six lines through opposite vertices of the icosahedron."""
    points = find_tammes_points(6, 3, True, starts=32, hops=0)
    cos = (points @ points.T).abs() - torch.eye(6, dtype=torch.float64)
    assert cos.max().item() == pytest.approx(1 / math.sqrt(5), abs=1e-13)


def test_more_starts_never_give_less_and_whole_groups_are_searched():
    few, some, many = (find_tammes_points(7, 3, False, starts=k, hops=0, seed=3) for k in (5, 32, 40))
    assert torch.equal(few, some)
    assert degrees(many) >= degrees(few)


def test_more_hops_never_give_less():
    assert degrees(find_tammes_points(7, 3, False, starts=1, hops=2, seed=1)) >= degrees(
        find_tammes_points(7, 3, False, starts=1, hops=0, seed=1)
    )


def test_few_steps_still_end_on_a_packing():
    assert degrees(find_tammes_points(4, 3, False, starts=1, hops=0, steps=3)) == pytest.approx(
        math.degrees(math.acos(-1 / 3))
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("n", "best"), [(43, 32.0906244), (49, 29.9235851), (50, 29.7529564), (80, 23.5530672)])
def test_sizes_whose_best_is_rare_are_found_with_any_seed(n, best, seed):
    assert degrees(find_tammes_points(n, 3, False, starts=64, hops=16, seed=seed)) == pytest.approx(best, abs=6e-8)


@pytest.mark.parametrize(("n", "dim", "half_space"), [(7, 2, False), (3, 2, True), (5, 4, False)])
def test_few_points_have_few_symmetries(n, dim, half_space):
    points = find_tammes_points(n, dim, half_space, starts=1, hops=0)
    cos = points @ points.T - 2 * torch.eye(n, dtype=points.dtype)
    best = {(7, 2): math.cos(2 * math.pi / 7), (3, 2): 0.5, (5, 4): -0.25}[n, dim]
    assert (cos.abs() - torch.eye(n) if half_space else cos).max().item() == pytest.approx(best, abs=1e-12)
