import pytest
import torch

from hypersphere import angular
from hypersphere.operators import magnitudes, tiles
from hypersphere.operators.conv import Conv2d
from hypersphere.operators.tails import angular_tail, scaled

FORMS = [angular.Linear(), angular.Sigmoid(0.4), angular.SquareCosine(), angular.Power(3)]


def inputs(each_neuron=False):
    product = torch.randn(3, 2, 1, 2, dtype=torch.float64).clamp(-0.9, 0.9)
    over = torch.rand(3, 1, 1, 2, dtype=torch.float64)
    h = torch.rand(3, 2 if each_neuron else 1, 1, 2, dtype=torch.float64) + 0.5
    return [t.requires_grad_() for t in (product, over, h, torch.randn(2, 1, 1, dtype=torch.float64))]


@pytest.mark.parametrize("g", FORMS, ids=repr)
@pytest.mark.parametrize(("tile", "each_neuron"), [(8, False), (8, True), (2**17, False)])
def test_value_and_both_derivatives(g, tile, each_neuron, monkeypatch):
    monkeypatch.setattr(tiles, "TILE", tile)
    product, over, h, bias = inputs(each_neuron)
    assert torch.allclose(angular_tail(product, over, h, bias, g), h * g(product * over) + bias)
    assert torch.allclose(angular_tail(product, over, h, None, g), h * g(product * over))
    assert torch.autograd.gradcheck(lambda *t: angular_tail(*t, g), (product, over, h, bias))
    if tile == 8 and not each_neuron:
        assert torch.autograd.gradgradcheck(lambda *t: angular_tail(*t, g), (product, over, h, bias))
    result = angular_tail(product, over, h.detach(), bias.detach(), g)
    (d_product,) = torch.autograd.grad(result.sum(), product)
    plain = torch.autograd.grad((h * g(product * over)).sum(), product)[0]
    assert torch.allclose(d_product, plain)


def test_what_it_does_not_know_is_left_to_autograd():
    product, over, h, bias = inputs()
    learned = angular.Sigmoid(0.4, learnable="layer").double()
    for g in (learned, angular.Cosine(), angular.as_angular(torch.sin)):
        assert angular_tail(product, over, h, bias, g) is None
    assert angular_tail(product.bfloat16(), over, h, bias, FORMS[0]) is None
    assert angular_tail(product[:0], over[:0], h[:0], bias, FORMS[0]) is None
    many = torch.func.vmap(lambda p: p * float(angular_tail(p, over[0], h[0], bias, FORMS[0]) is None))(product)
    assert torch.equal(many, product)


@pytest.mark.parametrize("g", FORMS, ids=repr)
@pytest.mark.parametrize("empty", [False, True], ids=["", "with empty patches"])
def test_a_layer_agrees_with_the_same_function_as_a_users_own(g, empty):
    layer = Conv2d(2, 4, 3, padding=1, magnitude=magnitudes.Tanh(learnable_radius=False), angular=g).double()
    own = Conv2d(2, 4, 3, padding=1, magnitude=magnitudes.Tanh(learnable_radius=False), angular=lambda cos: g(cos))
    own = own.double()
    own.load_state_dict(layer.state_dict())
    x = torch.randn(3, 2, 6, 6, dtype=torch.float64)
    if empty:
        x[0] = 0
    results = []
    for module in (layer, own):
        leaf = x.clone().requires_grad_()
        out = module(leaf)
        results.append((out, *torch.autograd.grad(out.square().sum(), (leaf, *module.parameters()))))
    for a, b in zip(*results, strict=True):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("tile", [8, 2**16])
def test_scaled_value_and_both_derivatives(tile, monkeypatch):
    monkeypatch.setattr(tiles, "TILE", tile)
    product, _, factor, bias = inputs()
    for ours in (False, True):
        call = lambda *t: scaled(*[v.clone() for v in t], ours=ours)  # noqa: B023
        assert torch.allclose(call(product, factor, bias), product * factor + bias)
        assert torch.autograd.gradcheck(call, (product, factor, bias))
        assert torch.autograd.gradgradcheck(call, (product, factor, bias))
    assert torch.allclose(scaled(product, factor, None), product * factor)
    assert scaled(product.float(), factor, bias) is None
    assert scaled(product[0], factor[0], bias) is None


@pytest.mark.parametrize("g", [angular.Cosine(), FORMS[0]], ids=repr)
def test_a_large_input_without_a_batch(g, monkeypatch):
    monkeypatch.setattr(tiles, "TILE", 16)
    layer = Conv2d(2, 4, 3, padding=1, angular=g)
    x = torch.randn(2, 6, 6)
    assert torch.allclose(layer(x), layer(x[None])[0], atol=1e-6)
