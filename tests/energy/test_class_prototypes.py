import math

import pytest
import torch

from hypersphere.energy import hyperspherical_energy, minimize_energy, place_prototypes
from hypersphere.geometry import angle


def angles(w):
    return angle(w, w, pairwise=True)


def test_few_classes_are_a_simplex_and_many_have_least_energy():
    w = place_prototypes(5, 7)
    assert torch.allclose(w @ w.T, (1.25 * torch.eye(5) - 0.25), atol=1e-6)
    assert torch.allclose(w.norm(dim=1), torch.ones(5))
    many = place_prototypes(12, 3)
    best = minimize_energy(12, 3)[0]
    assert hyperspherical_energy(many, s=1).item() == pytest.approx(hyperspherical_energy(best, s=1).item(), rel=1e-6)


@pytest.mark.parametrize("spread", [0.2, 0.5])
def test_groups_stay_together(spread):
    groups = [0, 2, 0, 1, 2, 2, 0, 3, 3]
    w = place_prototypes(9, 6, groups=groups, spread=spread)
    found, reach = angles(w), math.acos(-1 / 3)  # the angle between four simplex centers
    same = torch.tensor(groups)[:, None] == torch.tensor(groups)
    siblings = found[same & ~torch.eye(9, dtype=torch.bool)]
    assert siblings.max() <= spread * reach + 1e-4
    assert siblings.min() > 0.5 * spread * reach
    assert found[~same].min() >= (1 - spread) * reach - 1e-4
    assert found[~same].min() >= siblings.max() - 1e-4
    assert torch.allclose(w.norm(dim=1), torch.ones(9))


def test_members_are_spread_around_their_center():
    w = place_prototypes(6, 5, groups=[0, 0, 0, 1, 1, 1])
    first = angles(w[:3])
    off = first[~torch.eye(3, dtype=torch.bool)]
    assert off.std() < 1e-4
    center = torch.nn.functional.normalize(w[:3].mean(0), dim=0)
    assert angle(w[:3], center.expand(3, -1)).std() < 1e-4


def test_one_group_and_groups_of_one():
    assert place_prototypes(3, 4, groups=[7, 7, 7]).shape == (3, 4)
    alone = place_prototypes(3, 4, groups=[0, 1, 2])
    assert torch.allclose(alone @ alone.T, 1.5 * torch.eye(3) - 0.5, atol=1e-6)


def test_refuses():
    with pytest.raises(ValueError, match="num_classes must be ≥ 2"):
        place_prototypes(1, 3)
    with pytest.raises(ValueError, match="dim ≥ 3"):
        place_prototypes(4, 2, groups=[0, 0, 1, 1])
    with pytest.raises(ValueError, match="spread must lie"):
        place_prototypes(4, 3, spread=1.0)
    with pytest.raises(ValueError, match="groups must have one integer"):
        place_prototypes(4, 3, groups=[0, 1])
