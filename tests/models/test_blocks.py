import math

import pytest
import torch
from torch import nn

from hypersphere.models.blocks import Conv, Layers, Pool, Residual, Row, he_normal, make_layers
from hypersphere.operators import SphereNorm


@pytest.mark.parametrize(
    "row", [Conv(4), Conv(4, 3), Conv(4, kernel=7, stride=2), Conv(4, 2, kernel=4, stride=2), Pool(), Pool(3)], ids=repr
)
@pytest.mark.parametrize("size", [7, 8, 9, 16, 33])
def test_the_size_is_the_one_of_the_module(row: Row, size: int):
    module, channels = row.build(Layers(), 2)
    out = module(torch.zeros(2, 2, size, size + 3))
    assert out.shape[1:] == (channels, row.size(size), row.size(size + 3))


def test_a_row_repeats_its_convolution():
    module, channels = Conv(8, 3, kernel=5, stride=2).build(Layers(width=0.5), 3)
    convs = [m for m in module.modules() if isinstance(m, nn.Conv2d)]
    assert [(c.in_channels, c.out_channels, c.kernel_size[0], c.stride[0]) for c in convs] == [
        (3, 4, 5, 2),
        (4, 4, 5, 1),
        (4, 4, 5, 1),
    ]
    assert channels == 4


@pytest.mark.parametrize(
    "wrong", [{"filters": 0}, {"filters": 1, "times": 0}, {"filters": 1, "kernel": 0}, {"filters": 1, "stride": 0}]
)
def test_a_row_refuses(wrong):
    with pytest.raises(ValueError, match="must be integers ≥ 1, got Conv"):
        Conv(**wrong)


def test_he_normal_has_variance_two_over_fan_in():
    weight = he_normal(torch.empty(256, 64, 3, 3))
    assert weight.std().item() == pytest.approx(math.sqrt(2 / (64 * 9)), rel=0.01)
    assert abs(weight.mean().item()) < 1e-3


class TestLayers:
    def test_a_bias_only_where_no_norm_follows(self):
        assert Layers().convolution(2, 3, 3).conv.bias is None
        assert Layers(norm=None).convolution(2, 3, 3).conv.bias is not None
        assert Layers(norm=None).convolution(2, 3, 3, bias=False).conv.bias is None
        assert Layers().dense(2, 3).linear.bias is not None
        assert Layers(norm=nn.BatchNorm1d).dense(2, 3, normalize=True).linear.bias is None

    def test_prelu_has_a_slope_a_channel_and_other_factories_are_left_alone(self):
        assert Layers(activation=nn.PReLU).nonlinearity(6).num_parameters == 6
        assert Layers(activation=lambda: nn.PReLU()).nonlinearity(6).num_parameters == 1
        assert isinstance(Layers(activation=None).nonlinearity(6), nn.Identity)

    def test_the_initialisation_is_applied_to_the_weight_and_zeroes_the_bias(self):
        unit = Layers(norm=None, init=nn.init.ones_).convolution(2, 3, 3)
        assert torch.equal(unit.conv.weight, torch.ones(3, 2, 3, 3))
        assert not unit.conv.bias.any()

    def test_without_one_the_layer_keeps_its_own(self):
        torch.manual_seed(3)
        own = nn.Conv2d(2, 3, 3, padding=1)
        torch.manual_seed(3)
        assert torch.equal(Layers(norm=None, init=None).convolution(2, 3, 3).conv.weight, own.weight)

    def test_he_s_start_survives_a_sphere_norm_factory(self):
        def factory(*args, **kwargs):
            return SphereNorm(nn.Conv2d(*args, **kwargs), rescale=True)

        for layers in (Layers(conv=factory, norm=None), Layers(norm=SphereNorm), make_layers(norm="sphere_batch")):
            layer = layers.convolution(64, 256, 3).conv
            assert isinstance(layer, SphereNorm)
            assert layer.layer.weight.std().item() == pytest.approx(math.sqrt(2 / (64 * 9)), rel=0.02)

    def test_a_sphere_norm_takes_over_the_layer_and_keeps_its_bias(self):
        unit = make_layers(norm="sphere").convolution(2, 3, 3)
        assert list(dict(unit.named_children())) == ["conv", "activation"]
        assert unit.conv.layer.bias is not None
        assert list(make_layers(norm="sphere_batch").convolution(2, 3, 3).conv.state_dict())[:2] == [
            "layer.weight",
            "batchnorm.weight",
        ]

    def test_a_parametrized_weight_keeps_its_own(self):
        def factory(*args, **kwargs):
            return nn.utils.parametrizations.weight_norm(nn.Linear(*args, **kwargs))

        torch.manual_seed(3)
        own = factory(4, 5).weight
        torch.manual_seed(3)
        assert torch.equal(Layers(linear=factory, init=nn.init.ones_).dense(4, 5).linear.weight, own)

    def test_rows_of_layers(self):
        convolutions, channels = Layers(width=0.5).convolutions(3, (8, 16), 3, stride=2)
        assert convolutions(torch.zeros(2, 3, 8, 8)).shape == (2, channels, 2, 2)
        perceptron, dim = Layers(norm=nn.BatchNorm1d, width=0.5).perceptron(6, (8, 4))
        assert perceptron(torch.zeros(3, 6)).shape == (3, dim) == (3, 2)

    def test_scaled_is_at_least_one(self):
        assert [Layers(width=0.1).scaled(n) for n in (1, 16, 64)] == [1, 2, 6]


def test_residual_adds_and_then_acts():
    x = torch.randn(2, 3, 4, 4)
    assert torch.equal(Residual(nn.Identity())(x), 2 * x)
    assert torch.equal(Residual(nn.ReLU(), nn.Tanh(), nn.Sigmoid())(x), torch.sigmoid(x.relu() + x.tanh()))
