import pytest
from torch import nn

from hypersphere.energy import BilateralProjection, CoMHE, hyperspherical_energy
from tests.energy.contracts import ProjectionContract


class TestBilateral(ProjectionContract):
    def projection(self, **options):
        return BilateralProjection(rank=5, every=2, **options)

    def test_is_eq_e_21(self):
        layer = nn.Linear(12, 9)
        comhe = CoMHE(nn.Sequential(layer, nn.Linear(9, 3)), BilateralProjection(rank=5))
        p1, p2 = comhe.projection.left_12[0], comhe.projection.right_9[0]
        y1, y2 = layer.weight @ p1.T, p2 @ layer.weight
        expected = hyperspherical_energy(y1, half_space=True) + hyperspherical_energy(y2, half_space=True)
        assert comhe.per_layer()["0"].item() == pytest.approx(expected.item(), rel=1e-5)

    def test_each_side_is_shared_by_its_own_size(self):
        net = nn.Sequential(nn.Linear(12, 9), nn.Linear(12, 7), nn.Linear(9, 7), nn.Linear(7, 3))
        names = [k for k in CoMHE(net, BilateralProjection(rank=5)).state_dict() if "state" not in k]
        assert names == ["projection.left_12", "projection.right_9", "projection.right_7", "projection.left_9"]


def test_refuses():
    with pytest.raises(ValueError, match="rank must be"):
        BilateralProjection(rank=1)
