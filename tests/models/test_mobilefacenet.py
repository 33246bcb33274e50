from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hypersphere.models import MobileFaceNet

from .contract import NORMS, ImageContract, layers_of


class GroupedSphereConv2d(nn.Conv2d):
    """cos θ between the filter and the patch of its group."""

    def forward(self, x):
        patches = F.unfold(x, self.kernel_size, padding=self.padding, stride=self.stride)
        patches = F.normalize(patches.unflatten(1, (self.groups, -1)), dim=2)
        filters = F.normalize(self.weight.flatten(1), dim=1).unflatten(0, (self.groups, -1))
        cos = torch.einsum("gnd,bgdl->bgnl", filters, patches).flatten(1, 2)
        rows = (x.shape[2] + 2 * self.padding[0] - self.kernel_size[0]) // self.stride[0] + 1
        return (cos if self.bias is None else cos + self.bias[:, None]).unflatten(-1, (rows, -1))


class TestMobileFaceNet(ImageContract):
    small: ClassVar = {"width": 1 / 16, "input_size": 32, "feature_dim": 6, "blocks": (1, 1, 2, 1)}
    size = (32, 32)
    feature_dim = 6
    activation = nn.PReLU
    sphere_conv = GroupedSphereConv2d
    build = MobileFaceNet

    def test_its_own_norm_and_activation_are_the_text_s(self):
        model = self.make()
        assert [type(m) for m in layers_of(model, NORMS)].count(nn.BatchNorm1d) == 1  # after the embedding
        assert len(layers_of(model, nn.PReLU)) == 3 + 2 * (3 + 4)


def test_a_rectangle_and_a_first_stage_of_blocks():
    net = MobileFaceNet(blocks=(2, 1, 1, 1), scale=1, input_size=(33, 16), width=1 / 16, feature_dim=4)
    assert net(torch.zeros(2, 3, 33, 16)).shape == (2, 4)


def test_refuses_other_blocks_and_scales():
    with pytest.raises(ValueError, match=r"blocks must be four integers ≥ 1, one per stage, got \(1, 2\)"):
        MobileFaceNet(blocks=(1, 2))
    with pytest.raises(ValueError, match="scale must be an integer ≥ 1, got 0"):
        MobileFaceNet(scale=0)
