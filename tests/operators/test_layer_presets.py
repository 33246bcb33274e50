import pytest
import torch
from torch import nn

from hypersphere import angular, operators
from hypersphere.operators import magnitudes

KINDS = ["Sphere", "Ball", "Tanh", "Linear", "Seg", "Log", "Mix"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_preset_is_the_general_layer_with_its_magnitude(kind):
    preset = getattr(operators, f"{kind}Conv2d")(3, 8, 3, padding=1, bias=False)
    general = operators.Conv2d(3, 8, 3, padding=1, bias=False, magnitude=getattr(magnitudes, kind)())
    general.load_state_dict(preset.state_dict())
    x = torch.randn(2, 3, 6, 6)
    assert isinstance(preset, nn.Conv2d)
    assert torch.equal(preset(x), general(x))


@pytest.mark.parametrize("kind", ["Ball", "Tanh", "Seg"])
def test_the_radius_is_learned_as_in_c_1_to_c_3(kind):
    layer = getattr(operators, f"{kind}Conv2d")(3, 8, 3)
    assert torch.equal(layer.magnitude.radius.log_rho, torch.zeros(8))


def test_linear_preset_is_the_cosine():
    layer, x = operators.SphereLinear(6, 4, bias=False), torch.randn(3, 6)
    assert torch.allclose(layer(x), nn.functional.cosine_similarity(x[:, None], layer.weight[None], dim=-1), atol=1e-6)


def test_takes_its_own_magnitude_with_other_settings():
    h, g = magnitudes.Tanh(radius=3.0, learnable_radius=False), angular.SquareCosine()
    layer = operators.TanhConv2d(3, 8, 3, magnitude=h, angular=g)
    assert layer.magnitude is h
    assert layer.angular is g


def test_refuses_another_magnitude():
    with pytest.raises(ValueError, match=r"magnitude of TanhConv2d must be a magnitudes\.Tanh, got Sphere"):
        operators.TanhConv2d(3, 8, 3, magnitude=magnitudes.Sphere())
