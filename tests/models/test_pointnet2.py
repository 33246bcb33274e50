from typing import ClassVar

import torch
from torch import nn

from hypersphere import models
from hypersphere.models._pointnet2 import find_neighbors, sample_farthest

from .contract import ModelContract, SphereConv1d, layers_of


class TestPointNet2(ModelContract):
    small: ClassVar = {"width": 1 / 16, "dropout": 0.0, "centers": (8, 4)}
    feature_dim = 16
    sphere_conv = SphereConv1d
    norm = nn.BatchNorm1d
    build = staticmethod(models.pointnet2)

    def inputs(self, batch=4):
        return (0.3 * torch.randn(batch, 3, 20, generator=torch.Generator().manual_seed(1)),)

    def test_the_order_of_the_other_points_does_not_matter(self):
        model, (x,) = self.make().eval(), self.inputs()
        order = torch.cat([torch.zeros(1, dtype=torch.long), 1 + torch.randperm(19)])  # the first center is point 0
        assert torch.allclose(model(x[:, :, order]), model(x), atol=1e-5)

    def test_a_shifted_cloud_differs_at_the_last_level_only(self):
        model, (x,) = self.make().eval(), self.inputs()
        one, other = model.level1(x, None), model.level1(x + 1, None)
        assert torch.allclose(one[1], other[1], atol=1e-5)
        assert torch.allclose(one[0] + 1, other[0], atol=1e-6)


def test_the_layers_of_the_single_scale_model():
    with torch.device("meta"):
        net = models.pointnet2()
    assert [c.out_channels for c in layers_of(net, nn.Conv1d)] == [64, 64, 128, 128, 128, 256, 256, 512, 1024]
    assert [c.in_channels for c in layers_of(net, nn.Conv1d)][::3] == [3, 131, 259]
    assert [m.out_features for m in layers_of(net, nn.Linear)] == [512, 256]
    assert [m.p for m in layers_of(net, nn.Dropout)] == [0.5, 0.5]
    levels = [(level.centers, level.radius, level.neighbors) for level in (net.level1, net.level2)]
    assert levels == [(512, 0.2, 32), (128, 0.4, 64)]


def test_farthest_points_by_hand():
    cloud = torch.randn(30, 3, dtype=torch.float64)
    chosen = [0]
    for _ in range(9):
        distances = [min(float((p - cloud[c]).norm()) for c in chosen) for p in cloud]
        chosen.append(max(range(30), key=distances.__getitem__))
    assert sample_farthest(cloud[None], 10)[0].tolist() == chosen


def test_neighbors_by_hand():
    cloud = torch.randn(30, 3, dtype=torch.float64)
    found = find_neighbors(cloud[None, :5], cloud[None], 1.0, 4)[0].tolist()
    for center, group in zip(cloud[:5], found, strict=True):
        inside = [i for i in range(30) if float((cloud[i] - center).norm()) <= 1.0][:4]
        assert group == inside + inside[:1] * (4 - len(inside))
