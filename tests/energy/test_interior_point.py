import math

import pytest
import torch

from hypersphere.energy.interior_point import largest_cosine, minimize_largest_cosine, tangent_bases
from hypersphere.energy.point_symmetry import draw_orbits, rotation_symmetries
from hypersphere.geometry import normalize, uniform

pytestmark = pytest.mark.untyped  # type checks take longer than the computations


def icosahedron():
    phi = (1 + math.sqrt(5)) / 2
    corners = [[0, a, b * phi] for a in (1, -1) for b in (1, -1)]
    turned = [c[k:] + c[:k] for c in corners for k in range(3)]
    return normalize(torch.tensor(turned, dtype=torch.float64))


def shake(points, size, copies=3):
    noise = torch.randn(copies, *points.shape, dtype=points.dtype, generator=torch.Generator().manual_seed(0))
    return normalize(points + size * noise)


def test_the_icosahedron_is_restored_to_the_last_digits():
    found = minimize_largest_cosine(shake(icosahedron(), 0.02))
    assert torch.allclose(
        largest_cosine(found, False), torch.full((3,), 1 / math.sqrt(5), dtype=torch.float64), atol=1e-14
    )


def test_six_lines_through_its_corners():
    lines = icosahedron()
    lines = lines[[i for i in range(12) if not any(torch.allclose(lines[i], -lines[j]) for j in range(i))]]
    assert len(lines) == 6
    found = minimize_largest_cosine(shake(lines, 0.02), True)
    assert torch.allclose(
        largest_cosine(found, True), torch.full((3,), 1 / math.sqrt(5), dtype=torch.float64), atol=1e-14
    )


def test_perpendicular_lines_are_held_from_both_sides():
    found = minimize_largest_cosine(shake(torch.eye(4, dtype=torch.float64), 0.05), True)
    assert largest_cosine(found, True).max() < 1e-13


def test_a_point_without_contacts_does_no_harm():
    """Five of eleven icosahedron vertices can move, but the smallest angle is the same as with all twelve."""
    found = minimize_largest_cosine(shake(icosahedron()[:11], 0.01), steps=80)
    assert torch.allclose(
        largest_cosine(found, False), torch.full((3,), 1 / math.sqrt(5), dtype=torch.float64), atol=1e-12
    )


def test_agrees_with_a_linear_program_that_finds_nothing_to_gain():
    """An independent solver finds no small tangent step that increases all small distances."""
    scipy_optimize = pytest.importorskip("scipy.optimize")
    x = minimize_largest_cosine(shake(icosahedron(), 0.02, 1)[:, :10], steps=80)[0]
    n, bases = len(x), tangent_bases(x[None])[0]
    cos = x @ x.T
    i, j = (cos > largest_cosine(x[None], False) - 0.05).triu(1).nonzero(as_tuple=True)
    rows = torch.zeros(len(i), n, 2, dtype=torch.float64)
    rows[torch.arange(len(i)), i] = (bases[i].mT @ x[j].unsqueeze(2)).squeeze(2)
    rows[torch.arange(len(i)), j] = (bases[j].mT @ x[i].unsqueeze(2)).squeeze(2)
    system = torch.cat([rows.flatten(1), -torch.ones(len(i), 1, dtype=torch.float64)], 1)
    top = cos[i, j].max()
    done = scipy_optimize.linprog(
        [0.0] * (2 * n) + [1.0],
        A_ub=system.numpy(),
        b_ub=(top - cos[i, j]).numpy(),
        bounds=[(-1e-3, 1e-3)] * (2 * n) + [(None, None)],
    )
    assert done.fun == pytest.approx(0, abs=1e-9)


def test_never_worse_than_its_start_and_rows_are_independent():
    start = uniform(5 * 9, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64).view(5, 9, 3)
    found = minimize_largest_cosine(start, steps=15)
    assert (largest_cosine(found, False) <= largest_cosine(start, False)).all()
    alone = minimize_largest_cosine(start[2:3], steps=15)
    assert torch.allclose(largest_cosine(alone, False), largest_cosine(found[2:3], False), atol=1e-9)
    assert torch.allclose(found.norm(dim=2), torch.ones(5, 9, dtype=torch.float64))


@pytest.mark.parametrize("dim", [2, 3, 5])
def test_bases_are_orthonormal_and_tangent(dim):
    x = torch.cat([uniform(6, dim, dtype=torch.float64), torch.eye(dim).double(), -torch.eye(dim).double()])[None]
    bases = tangent_bases(x)
    assert torch.allclose(bases.mT @ bases, torch.eye(dim - 1).double().expand(1, len(x[0]), -1, -1))
    assert (bases.mT @ x.unsqueeze(-1)).abs().max() < 1e-14


@pytest.mark.parametrize(("n", "dim", "half_space"), [(12, 3, False), (9, 3, True), (12, 4, False)])
def test_orbits_move_as_their_whole_arrangement_does(n, dim, half_space):
    """A step of the symmetric problem equals one of the full problem with multipliers and damping divided by k."""
    for symmetry in rotation_symmetries(n, dim, half_space):
        if len(symmetry.fixed) == 0:
            start = draw_orbits(2, n, symmetry, torch.Generator().manual_seed(2))
            orbits = minimize_largest_cosine(
                start, half_space, steps=1, damping=1e-3 * symmetry.order, symmetry=symmetry
            )
            whole = minimize_largest_cosine(symmetry.expand(start), half_space, steps=1)
            assert torch.allclose(symmetry.expand(orbits), whole, atol=1e-8)


def test_fixed_points_hold_the_others():
    """Ten points between two fixed poles form the icosahedron, and one fixed pole does not make the result worse."""
    for symmetry in rotation_symmetries(12, 3, False):
        if symmetry.order == 5:
            assert len(symmetry.fixed) == 2
            found = symmetry.expand(
                minimize_largest_cosine(
                    draw_orbits(8, 12, symmetry, torch.Generator().manual_seed(0)), steps=80, symmetry=symmetry
                )
            )
            assert largest_cosine(found, False).min().item() == pytest.approx(1 / math.sqrt(5), abs=1e-12)


def test_hopeless_rows_are_given_up_and_the_others_untouched():
    start = uniform(6 * 20, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64).view(6, 20, 3)
    full = largest_cosine(minimize_largest_cosine(start, steps=60), False)
    given_up = largest_cosine(minimize_largest_cosine(start, steps=60, hopeless=0.0), False)
    assert (given_up >= full).all()
    assert given_up.min() > full.min()
    assert torch.equal(largest_cosine(minimize_largest_cosine(start, steps=60, hopeless=1.0), False), full)
