import pytest
import torch

from hypersphere import geometry
from hypersphere.geometry.units import MIN_NORM, inverse, per_neuron, unit


@pytest.mark.parametrize("shape", [(5, 7), (4, 3, 2), (4, 3, 2, 2), (4, 3, 2, 2, 2)])
def test_agrees_with_geometry(shape):
    weight = torch.randn(shape, dtype=torch.float64)
    what, length = unit(weight)
    assert torch.allclose(what.flatten(1), geometry.normalize(weight.flatten(1)), atol=1e-15)
    assert torch.allclose(length, geometry.norm(weight.flatten(1)), atol=1e-15)


def test_gradcheck():
    weight = torch.randn(3, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(unit, weight)
    assert torch.autograd.gradgradcheck(unit, weight)


def test_a_zero_neuron_is_zero_with_gradient_zero():
    weight = torch.randn(3, 4)
    weight[1] = 0
    weight.requires_grad_()
    what, length = unit(weight)
    (what.sum() + length.sum()).backward()
    assert (what[1] == 0).all()
    assert length[1] == 0
    assert (weight.grad[1] == 0).all()
    assert torch.isfinite(weight.grad).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_weights_are_measured_in_float32(dtype):
    what, length = unit(torch.full((2, 40000), 2.0, dtype=dtype))
    assert what.dtype == dtype
    assert torch.allclose(length, torch.tensor(400.0))


def test_keeps_channels_last():
    weight = torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last)
    assert unit(weight)[0].is_contiguous(memory_format=torch.channels_last)


def test_vmap():
    weights = torch.randn(3, 4, 5)
    assert torch.allclose(torch.vmap(unit)(weights)[0], torch.stack([unit(w)[0] for w in weights]))


def test_per_neuron_broadcasts_over_the_last_axes():
    assert per_neuron(torch.ones(5), 3).shape == (5, 1, 1)


def test_the_inverse_has_no_steeper_slope_than_at_the_floor():
    x = torch.logspace(-12, 2, 200, dtype=torch.float64, requires_grad=True)
    inverse(x).sum().backward()
    assert x.grad.abs().max() <= 1 / MIN_NORM**2
    assert torch.allclose(inverse(x)[x >= MIN_NORM], 1 / x[x >= MIN_NORM])
