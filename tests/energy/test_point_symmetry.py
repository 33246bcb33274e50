import pytest
import torch

from hypersphere.energy.point_symmetry import draw_orbits, no_symmetry, rotation_symmetries, self_entries

CASES = [(12, 3, False), (13, 3, False), (50, 3, False), (12, 2, False), (12, 4, False), (15, 3, True), (12, 5, True)]


@pytest.mark.parametrize(("n", "dim", "half_space"), CASES)
def test_a_rotation_maps_the_whole_to_itself(n, dim, half_space):
    found = rotation_symmetries(n, dim, half_space)
    assert found
    for symmetry in found:
        turn = symmetry.rotation
        assert torch.allclose(turn @ turn.T, torch.eye(dim, dtype=turn.dtype))
        assert torch.allclose(torch.linalg.matrix_power(turn, symmetry.order), torch.eye(dim, dtype=turn.dtype))
        orbits = draw_orbits(2, n, symmetry, torch.Generator().manual_seed(0))
        whole = symmetry.expand(orbits)
        assert whole.shape == (2, n, dim)
        assert torch.equal(whole[:, : orbits.shape[1]], orbits)
        assert (torch.cdist(whole @ turn.T, whole, compute_mode="donot_use_mm_for_euclid_dist").amin(2) < 1e-12).all()
        cos = whole @ whole.mT
        cos = (cos.abs() if half_space else cos) - torch.eye(n, dtype=whole.dtype)
        assert cos.max() < 1 - 1e-9  # all points, or lines, are different


def test_no_symmetry():
    symmetry = no_symmetry(3)
    points = draw_orbits(2, 7, symmetry, torch.Generator().manual_seed(0))
    assert points.shape == (2, 7, 3)
    assert symmetry.expand(points) is points
    assert rotation_symmetries(7, 2, False) == []


def test_self_entries_are_a_view_of_the_first_columns():
    entries = torch.zeros(1, 1, 2, 5)
    self_entries(entries).fill_(1)
    assert entries[0, 0].tolist() == [[1, 0, 0, 0, 0], [0, 1, 0, 0, 0]]
