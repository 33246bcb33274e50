import pytest
import torch

from hypersphere.energy.basin_hopping import disturb, hop_basins, keep_distinct
from hypersphere.geometry import normalize, uniform

pytestmark = pytest.mark.untyped


def generator():
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize(("dim", "half_space"), [(2, False), (3, False), (3, True), (5, False)])
def test_a_disturbed_row_stays_on_the_sphere_and_most_points_stay_put(dim, half_space):
    x = uniform(20, dim, dtype=torch.float64).expand(16, -1, -1)
    y = disturb(x, half_space, generator())
    assert torch.allclose(y.norm(dim=2), torch.ones(16, 20, dtype=torch.float64))
    far = ((y * x).sum(2) < 0.9).sum(1)
    assert (far[:4] <= 1).all()  # one point is moved in the first four rows, two in the next, then three
    assert (far[4:8] <= 2).all()
    assert (far[8:12] <= 3).all()
    assert far.sum() > 8
    assert torch.equal(y, disturb(x, half_space, generator()))


def test_a_rotated_half_keeps_its_distances():
    x = uniform(30, 3, dtype=torch.float64).expand(16, -1, -1)
    before, after = x[15] @ x[15].T, disturb(x, False, generator())[15]
    same = ((after @ after.T - before).abs() < 0.1).float().mean()
    assert same > 0.45  # pairs in the same half keep their cosine
    assert (after - x[15]).norm(dim=1).max() > 0.1


def test_holes_are_where_points_are_missing():
    """All points are in the lower half, so moved points go up."""
    x = uniform(40, 3, dtype=torch.float64)
    x[:, 2] = -x[:, 2].abs()
    y = disturb(x.expand(4, -1, -1), False, generator())
    assert (y[:, :, 2].amax(1) > 0.5).all()


def test_the_value_never_rises_and_patience_ends_the_search():
    calls = []

    def relax(x):
        calls.append(len(x))
        return x, torch.full((len(x),), 5.0, dtype=x.dtype)

    points = uniform(12, 3, dtype=torch.float64).view(2, 6, 3)
    values = torch.tensor([2.0, 1.0], dtype=torch.float64)
    best, value = hop_basins(
        points, values, relax, children=8, rounds=50, patience=3, apart=1e-9, half_space=False, generator=generator()
    )
    assert value == 1.0
    assert torch.equal(best, points[1])
    assert calls == [8, 8, 8]


def test_hops_find_what_a_start_misses():
    """Without relaxation, moves into holes alone separate two equal points."""

    def relax(x):
        x = normalize(x)
        return x, (x @ x.mT - 2 * torch.eye(x.shape[1])).flatten(1).amax(1)

    start = normalize(torch.tensor([[[1.0, 0, 0], [1, 0.01, 0], [0, 1, 0], [0, 0, 1]]], dtype=torch.float64))
    before = relax(start)[1]
    _, value = hop_basins(
        start, before, relax, children=16, rounds=5, patience=5, apart=1e-9, half_space=False, generator=generator()
    )
    assert value < 0.3 < before


def test_equal_values_are_one_arrangement_and_what_is_not_a_number_is_none():
    values = torch.tensor([3.0, 1.0, 1.0 + 1e-12, float("nan"), 2.0], dtype=torch.float64)
    points = torch.arange(5.0).view(5, 1, 1).expand(5, 2, 3)
    kept, chosen = keep_distinct(points, values, 1e-9)
    assert chosen.tolist() == [1.0, 2.0, 3.0]
    assert kept[:, 0, 0].tolist() == [1.0, 4.0, 0.0]
    assert keep_distinct(points, values, 1e-9, 2)[1].tolist() == [1.0, 2.0]
