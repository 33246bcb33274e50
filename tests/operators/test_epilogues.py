import pytest
import torch

from hypersphere import angular
from hypersphere.operators import magnitudes, tiling
from hypersphere.operators.conv import Conv1d, Conv2d, Conv3d
from hypersphere.operators.epilogues import apply_angular_epilogue, apply_scale_epilogue
from hypersphere.operators.linear import Linear

FORMS = [angular.Linear(), angular.Sigmoid(0.4), angular.SquareCosine(), angular.Power(3)]


def inputs(each_neuron=False):
    product = torch.randn(3, 2, 1, 2, dtype=torch.float64).clamp(-0.9, 0.9)
    over = torch.rand(3, 1, 1, 2, dtype=torch.float64)
    h = torch.rand(3, 2 if each_neuron else 1, 1, 2, dtype=torch.float64) + 0.5
    return [t.requires_grad_() for t in (product, over, h, torch.randn(2, 1, 1, dtype=torch.float64))]


@pytest.mark.parametrize("g", FORMS, ids=repr)
@pytest.mark.parametrize(("tile", "each_neuron"), [(8, False), (8, True), (2**17, False)])
def test_value_and_both_derivatives(g, tile, each_neuron, monkeypatch):
    monkeypatch.setattr(tiling, "TILE", tile)
    product, over, h, bias = inputs(each_neuron)
    assert torch.allclose(apply_angular_epilogue(product, over, h, bias, g), h * g(product * over) + bias)
    assert torch.allclose(apply_angular_epilogue(product, over, h, None, g), h * g(product * over))
    assert torch.autograd.gradcheck(lambda *t: apply_angular_epilogue(*t, g), (product, over, h, bias))
    if tile == 8 and not each_neuron:
        assert torch.autograd.gradgradcheck(lambda *t: apply_angular_epilogue(*t, g), (product, over, h, bias))
    result = apply_angular_epilogue(product, over, h.detach(), bias.detach(), g)
    (d_product,) = torch.autograd.grad(result.sum(), product)
    plain = torch.autograd.grad((h * g(product * over)).sum(), product)[0]
    assert torch.allclose(d_product, plain)


@pytest.mark.untyped
@pytest.mark.parametrize("g", FORMS, ids=repr)
@pytest.mark.parametrize("each_neuron", [False, True])
def test_the_compiled_derivative(g, each_neuron):
    torch._dynamo.reset()
    compiled = torch.compile(lambda *t: apply_angular_epilogue(*t, g), fullgraph=True, backend="aot_eager")
    given = inputs(each_neuron)
    with torch._functorch.config.patch(donated_buffer=False):  # gradcheck runs the backward pass more than once
        assert torch.allclose(compiled(*given), apply_angular_epilogue(*given, g), rtol=1e-12)
        assert torch.autograd.gradcheck(compiled, given)
        (first,) = torch.autograd.grad(compiled(*given).sum(), given[0], create_graph=True)
        with pytest.raises(RuntimeError, match="double backward"):
            torch.autograd.grad(first.sum(), given[0])


@pytest.mark.untyped
@pytest.mark.parametrize("shape", [(), (5,), (5, 4), (5, 4, 3)], ids=["linear", "conv1d", "conv2d", "conv3d"])
def test_compiled_layers_agree_in_all_gradients_with_short_patches_among_them(shape):
    torch._dynamo.reset()
    layer = (Linear, Conv1d, Conv2d, Conv3d)[len(shape)](*(4, 6, 3)[: 3 if shape else 2], angular=FORMS[1]).double()
    x = torch.randn(3, 4, *shape, dtype=torch.float64)
    x[0], x[1] = 0, x[1] * 1e-8
    results = []
    for f in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        leaf = x.clone().requires_grad_()
        out = f(leaf)
        results.append((out, *torch.autograd.grad(out.square().sum(), (leaf, *layer.parameters()))))
    for a, b in zip(*results, strict=True):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.untyped
def test_inductor_agrees_with_double_precision():
    torch._dynamo.reset()
    layer, weights = Conv2d(16, 16, 3, padding=1, angular=angular.Sigmoid()), torch.randn(2, 16, 8, 8)
    x = torch.randn(2, 16, 8, 8)
    x[0, :, :4] = 0
    found = []
    for f, dtype in ((torch.compile(layer, fullgraph=True), torch.float32), (layer, torch.float64)):
        layer.to(dtype)
        leaf = x.detach().to(dtype).requires_grad_()
        out = f(leaf)
        found.append((out, *torch.autograd.grad((out * weights).sum(), (leaf, *layer.parameters()))))
    for a, b in zip(*found, strict=True):
        assert (a - b).abs().max() <= 2e-6 * b.abs().max()


@pytest.mark.untyped
def test_compiled_half_precision_is_summed_in_float32():
    torch._dynamo.reset()
    layer = Conv2d(256, 4, 3, angular=FORMS[0]).bfloat16()
    x = (10 + torch.randn(1, 256, 5, 5)).bfloat16()
    exact = Conv2d(256, 4, 3, angular=FORMS[0])
    exact.load_state_dict(layer.state_dict())
    grads = []
    for f, leaf in ((torch.compile(layer, fullgraph=True, backend="aot_eager"), x), (exact, x.float())):
        leaf = leaf.clone().requires_grad_()
        out = f(leaf)
        assert out.dtype == leaf.dtype
        out.float().sum().backward()
        grads.append(leaf.grad.float())
    assert (grads[0] - grads[1]).abs().max() <= 0.05 * grads[1].abs().max()


def test_unsupported_arguments_are_left_to_autograd():
    product, over, h, bias = inputs()
    learned = angular.Sigmoid(0.4, learnable="layer").double()
    for g in (learned, angular.Cosine(), angular.as_angular(torch.sin)):
        assert apply_angular_epilogue(product, over, h, bias, g) is None
    assert apply_angular_epilogue(product.bfloat16(), over, h, bias, FORMS[0]) is None
    assert apply_angular_epilogue(product[:0], over[:0], h[:0], bias, FORMS[0]) is None
    many = torch.func.vmap(lambda p: p * float(apply_angular_epilogue(p, over[0], h[0], bias, FORMS[0]) is None))(
        product
    )
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
    monkeypatch.setattr(tiling, "TILE", tile)
    product, _, factor, bias = inputs()
    for owned in (False, True):
        call = lambda *t: apply_scale_epilogue(*[v.clone() for v in t], owned=owned)  # noqa: B023
        assert torch.allclose(call(product, factor, bias), product * factor + bias)
        assert torch.autograd.gradcheck(call, (product, factor, bias))
        assert torch.autograd.gradgradcheck(call, (product, factor, bias))
    assert torch.allclose(apply_scale_epilogue(product, factor, None), product * factor)
    assert apply_scale_epilogue(product.float(), factor, bias) is None
    assert apply_scale_epilogue(product[0], factor[0], bias) is None


@pytest.mark.parametrize("g", [angular.Cosine(), FORMS[0]], ids=repr)
def test_a_large_input_without_a_batch(g, monkeypatch):
    monkeypatch.setattr(tiling, "TILE", 16)
    layer = Conv2d(2, 4, 3, padding=1, angular=g)
    x = torch.randn(2, 6, 6)
    assert torch.allclose(layer(x), layer(x[None])[0], atol=1e-6)
