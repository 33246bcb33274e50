import pytest
import torch
from torch import nn

from hypersphere.operators import Conv2d, Linear, magnitudes
from hypersphere.operators.magnitudes import as_magnitude
from tests.operators.contracts import FormulaContract, MagnitudeContract


class Gate(nn.Module):
    """A user's magnitude with a parameter."""

    def __init__(self, start=0.0):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(start))

    def forward(self, x_norm):
        return self.scale * x_norm.sqrt()


class TestCallable(MagnitudeContract):
    magnitude = as_magnitude(torch.sqrt)

    def formula(self, w_norm, x_norm):
        return x_norm**0.5


class TestCallableOnBothNorms(FormulaContract):
    magnitude = as_magnitude(lambda w_norm, x_norm: w_norm**2 * x_norm)

    def formula(self, w_norm, x_norm):
        return w_norm**2 * x_norm


def test_a_module_learns_even_from_zero():
    layer = Conv2d(3, 4, 3, magnitude=Gate())
    assert "magnitude.function.scale" in dict(layer.named_parameters())
    layer(torch.randn(2, 3, 5, 5)).sum().backward()
    assert layer.magnitude.function.scale.grad != 0


def test_shared_where_nothing_is_learned():
    magnitude = magnitudes.Tanh(learnable_radius=False)
    a, b = Linear(3, 4, magnitude=magnitude), Linear(3, 5, magnitude=magnitude)
    assert a.magnitude is b.magnitude is magnitude


@pytest.mark.untyped
@pytest.mark.parametrize("wrong", ["tanh", 3, magnitudes.Tanh])
def test_refuses_what_is_not_callable(wrong):
    with pytest.raises(ValueError, match="magnitude must be an object of"):
        Linear(3, 4, magnitude=wrong)


def test_refuses_a_callable_of_three():
    with pytest.raises(ValueError, match="magnitude must take ‖x‖, or ‖w‖ and ‖x‖, got a callable of 3 arguments"):
        as_magnitude(lambda a, b, c: a)


def test_the_base_class_says_what_is_missing():
    with pytest.raises(TypeError, match="radial"):
        magnitudes.Magnitude()


@pytest.mark.untyped
def test_refuses_a_weighting_that_is_not_its_own():
    with pytest.raises(ValueError, match="weighted must be one of None, 'linear' for Log, got 'product_of_tanh'"):
        magnitudes.Log(weighted="product_of_tanh")
