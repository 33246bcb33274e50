import functools
from typing import ClassVar

import pytest
import torch
from torch import nn

from hypersphere.models import IResNet, make_layers
from hypersphere.models.iresnet import IResNetBlock

from .contract import NORMS, ImageContract, layers_of


class TestIResNet18(ImageContract):
    small: ClassVar = {"width": 1 / 16, "input_size": 32, "feature_dim": 6}
    size = (32, 32)
    feature_dim = 6
    activation = nn.PReLU
    build = staticmethod(functools.partial(IResNet, 18))

    def test_its_own_norm_and_activation_are_the_text_s(self):
        model = self.make()
        assert [type(m) for m in layers_of(model, NORMS)].count(nn.BatchNorm1d) == 1  # after the embedding
        assert len(layers_of(model, nn.PReLU)) == 1 + 8


def test_the_last_block_of_a_stage_adds_its_input():
    block = IResNetBlock(make_layers(), 8, 8).eval()
    nn.init.zeros_(block.second.norm.weight)
    x = torch.randn(1, 8, 5, 5)
    assert torch.equal(block(x), x)


def test_a_rectangle_of_odd_sides():
    net = IResNet(18, input_size=(33, 16), width=1 / 16, feature_dim=4)
    assert net(torch.zeros(2, 3, 33, 16)).shape == (2, 4)


@pytest.mark.untyped
def test_refuses_another_depth():
    with pytest.raises(ValueError, match="depth must be one of 18, 34, 50, 100, 200, got 20"):
        IResNet(20)
