from typing import ClassVar

import pytest
import torch
from torch import nn

from hypersphere import models

from .contract import ImageContract, layers_of


class TestSphereFace10(ImageContract):
    small: ClassVar = {"width": 1 / 16, "input_size": (16, 32)}
    size = (16, 32)
    feature_dim = 512
    norm = None
    activation = nn.PReLU
    build = staticmethod(models.sphereface10)


# Table 2.7. For 64, 128, 256, 512 filters and u units per stage, the weights are 9·in·out for the convolution of
# stride 2 and 2·9·out² per unit. Stride 2: 9·(3·64 + 64·128 + 128·256 + 256·512) = 1,550,016;
# per unit: 73,728  294,912  1,179,648  4,718,592.
# FC1 on 512 maps of 7×6: 21,504·512 = 11,010,048. Biases (of the strided ones and FC1): 64+128+256+512 + 512 = 1,472.
# PReLU: one slope per filter, (64, 128, 256, 512)·(1 + 2u).
FIXED = 1_550_016 + 11_010_048 + 1_472
UNITS = {4: (0, 0, 0, 0), 10: (0, 1, 2, 0), 20: (1, 2, 4, 1), 36: (2, 4, 8, 2), 64: (3, 8, 16, 3)}
UNIT_WEIGHTS = {4: 0, 10: 2_654_208, 20: 10_100_736, 36: 20_201_472, 64: 35_610_624}
SLOPES = {4: 960, 10: 960 + 256 + 1024, 20: 960 + 3_712, 36: 960 + 7_424, 64: 960 + 13_696}
COUNTS = {4: 12_562_496, 10: 15_217_984, 20: 22_666_944, 36: 32_771_392, 64: 48_186_816}


@pytest.mark.parametrize("depth", [4, 10, 20, 36, 64])
def test_parameters_by_hand(depth):
    assert COUNTS[depth] == FIXED + UNIT_WEIGHTS[depth] + SLOPES[depth]
    with torch.device("meta"):
        net = getattr(models, f"sphereface{depth}")()
    assert sum(p.numel() for p in net.parameters()) == COUNTS[depth]
    assert sum(m.weight.numel() for m in layers_of(net, nn.PReLU)) == SLOPES[depth]


@pytest.mark.parametrize("depth", [4, 10, 20, 36, 64])
def test_table_2_7(depth):
    with torch.device("meta"):
        net = models.sphereface(depth)
    convs = layers_of(net, nn.Conv2d)
    assert len(convs) == depth
    expected = [(n, s) for n, u in zip((64, 128, 256, 512), UNITS[depth], strict=True) for s in [2] + [1] * (2 * u)]
    assert [(c.out_channels, c.stride[0]) for c in convs] == expected
    assert net.feature_dim == 512
    assert net.classifier is None


def test_a_unit_adds_to_its_input_after_the_activation():
    net = models.sphereface20(width=1 / 16, input_size=16)
    conv, unit = net.body.stage1
    x = conv(torch.randn(2, 3, 16, 16))
    first, second = unit.body
    inner = nn.functional.prelu(first.conv(x), first.activation.weight)
    assert torch.allclose(unit(x), x + nn.functional.prelu(second.conv(inner), second.activation.weight), atol=1e-6)


def test_the_start():
    """Units start near the identity; the other layers have variance 1/fan_in."""
    net = models.sphereface20(input_size=32)
    for conv in layers_of(net, nn.Conv2d)[1:]:
        expected = 0.01 if conv.stride == (1, 1) else (1 / (conv.in_channels * 9)) ** 0.5
        assert conv.weight.std().item() == pytest.approx(expected, rel=0.03)
    assert net.fc[0].linear.weight.std().item() == pytest.approx(net.fc[0].linear.in_features ** -0.5, rel=0.03)


def test_another_start_for_all_layers_and_each_layer_s_own():
    net = models.sphereface10(width=1 / 16, input_size=16, init=None)
    bound = 1 / (net.body.stage2[1].body[0].conv.weight[0].numel()) ** 0.5
    assert net.body.stage2[1].body[0].conv.weight.abs().max() <= bound
    assert net.body.stage2[1].body[0].conv.weight.std() > 0.3 * bound


@pytest.mark.untyped
def test_refuses_a_depth():
    with pytest.raises(ValueError, match="depth must be one of 4, 10, 20, 36, 64, got 12"):
        models.sphereface(12)
