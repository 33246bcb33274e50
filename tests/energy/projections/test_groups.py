import pytest
import torch
from torch import nn

from hypersphere.energy import ChannelGroups, CoMHE, hyperspherical_energy
from tests.energy.contracts import ProjectionContract


class TestFixed(ProjectionContract):
    def projection(self, **options):
        return ChannelGroups(size=8, **options)

    def test_is_eq_6_9(self):
        layer = nn.Conv2d(20, 6, 3)
        comhe = CoMHE(nn.Sequential(layer, nn.Linear(6, 3)), ChannelGroups(size=8))
        parts = [layer.weight[:, a:b] for a, b in ((0, 8), (8, 16), (16, 20))]
        expected = torch.stack([hyperspherical_energy(part, half_space=True) for part in parts]).mean()
        assert comhe.per_layer()["0"].item() == pytest.approx(expected.item(), rel=1e-5)


class TestStochastic(ProjectionContract):
    def projection(self, **options):
        return ChannelGroups(size=8, stochastic=True, **options)

    def test_the_groups_change_and_cover_all_channels(self):
        comhe = CoMHE(nn.Sequential(nn.Conv2d(20, 6, 3), nn.Linear(6, 3)), ChannelGroups(size=8, stochastic=True))
        before = comhe.projection.order_20.clone()
        comhe.step()
        assert not torch.equal(before, comhe.projection.order_20)
        assert torch.equal(comhe.projection.order_20.sort().values, torch.arange(20))


def test_refuses():
    with pytest.raises(ValueError, match="size must be"):
        ChannelGroups(size=0)
