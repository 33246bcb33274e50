import pytest
import torch
from torch import nn

from hypersphere import angular
from hypersphere.config import as_call, assign
from hypersphere.operators import Conv2d, SphereNorm, magnitudes
from hypersphere.training import Config

LAYERS = [
    (lambda: nn.Linear(6, 4), (5, 6), nn.BatchNorm1d),
    (lambda: nn.Conv1d(3, 4, 3), (5, 3, 7), nn.BatchNorm1d),
    (lambda: nn.Conv2d(3, 4, 3), (5, 3, 7, 7), nn.BatchNorm2d),
    (lambda: nn.Conv3d(3, 4, 2), (5, 3, 4, 4, 4), nn.BatchNorm3d),
]


@pytest.mark.parametrize(("make", "shape", "_"), LAYERS)
def test_starts_as_the_operator_and_then_rescales(make, shape, _):
    plain = make()
    weight, bias = plain.weight, plain.bias.detach().clone()
    layer, x = SphereNorm(plain, rescale=True), torch.randn(shape)
    before = layer(x)
    per = lambda v: v.reshape(-1, *[1] * (len(shape) - 2))
    assert layer.layer.weight is weight
    assert (before - per(bias)).abs().max() <= 1 + 1e-5
    layer.beta.data, layer.gamma.data = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.ones(4)
    assert torch.allclose(layer(x), per(layer.beta) * (before - per(bias)) + 1, atol=1e-5)


@pytest.mark.parametrize(("make", "shape", "kind"), LAYERS)
def test_beside_batchnorm(make, shape, kind):
    layer, x = SphereNorm(make(), batchnorm=True), torch.randn(shape)
    out = layer(x)
    assert isinstance(layer.batchnorm, kind)
    axes = [axis for axis in range(out.ndim) if axis != 1]
    assert torch.allclose(out.mean(axes), layer.batchnorm.bias, atol=1e-5)
    assert len(list(layer.parameters())) == 3


def test_without_rescaling_it_is_the_sphere_operator_with_its_bias():
    plain = nn.Conv2d(3, 4, 3)
    layer, x = SphereNorm(plain, angular=angular.Linear()), torch.randn(2, 3, 5, 5)
    expected = Conv2d(3, 4, 3, angular=angular.Linear())
    expected.load_state_dict(layer.layer.state_dict())
    assert torch.equal(layer(x), expected(x))


def test_does_not_depend_on_the_batch():
    layer, x = SphereNorm(nn.Conv2d(3, 4, 3, bias=False)), torch.randn(4, 3, 5, 5)
    assert torch.allclose(layer(x)[:1], layer(x[:1]), atol=1e-6)


def test_keeps_an_operator_and_round_trips():
    make = lambda: SphereNorm(Conv2d(3, 4, 3, magnitude=magnitudes.Log()))
    layer, other, x = make(), make(), torch.randn(2, 3, 5, 5)
    assert isinstance(layer.layer.magnitude, magnitudes.Log)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x), layer(x))


@pytest.mark.parametrize(("make", "shape", "_"), LAYERS)
@pytest.mark.parametrize(("beta", "gamma"), [(2.5, 0.7), (3.0, None), (None, -0.4), (1.0, 0.0)])
def test_fixed_rescaling(make, shape, _, beta, gamma):
    plain = make()
    weight, bias = plain.weight, plain.bias.detach().clone()
    layer, x = SphereNorm(plain, beta=beta, gamma=gamma), torch.randn(shape)
    operator = SphereNorm(make())
    operator.layer.weight, operator.layer.bias = weight, None
    shift = bias.reshape(-1, *[1] * (len(shape) - 2)) if gamma is None else gamma
    torch.testing.assert_close(layer(x), (1.0 if beta is None else beta) * operator(x) + shift)
    names = {name for name, _ in layer.named_parameters()}
    assert names == ({"layer.weight", "layer.bias"} if gamma is None else {"layer.weight"})


def test_fixed_rescaling_from_the_command_line():
    keys = ["backbone.norm=SphereNorm", "backbone.norm.beta=4", "backbone.norm.gamma=0.5", "backbone.width=0.05"]
    net = assign(as_call(Config()), keys).build().backbone.build(num_classes=None, in_channels=1, input_size=8)
    norms = [module for module in net.modules() if isinstance(module, SphereNorm)]
    assert len(norms) == 9
    assert {(module.fixed_beta, module.fixed_gamma, module.layer.bias) for module in norms} == {(4.0, 0.5, None)}
    assert "beta=4, gamma=0.5" in repr(norms[0])


def test_refuses():
    with pytest.raises(ValueError, match=r"beta is fixed, so rescale and batchnorm must be False, got beta=2\.0"):
        SphereNorm(nn.Conv2d(3, 4, 3), rescale=True, beta=2.0)
    with pytest.raises(ValueError, match="gamma must be a finite number or None, got nan"):
        SphereNorm(nn.Conv2d(3, 4, 3), gamma=float("nan"))
    with pytest.raises(ValueError, match="rescale must be False with batchnorm=True"):
        SphereNorm(nn.Conv2d(3, 4, 3), rescale=True, batchnorm=True)
    with pytest.raises(ValueError, match="no layer of BatchNorm2d was converted"):
        SphereNorm(nn.BatchNorm2d(3))
    with pytest.raises(ValueError, match="angular must be None for an operator"):
        SphereNorm(Conv2d(3, 4, 3), angular=angular.Linear())
