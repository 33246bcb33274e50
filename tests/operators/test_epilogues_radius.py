import numpy as np
import pytest
import torch

from hypersphere import angular
from hypersphere.operators import Conv2d, magnitudes, tiling
from hypersphere.operators.epilogues import apply_radius_epilogue

MEMBERS = [
    magnitudes.Ball(1.5),
    magnitudes.Tanh(1.5),
    magnitudes.Seg(1.5, 0.25),
    magnitudes.Seg(0.5, 1.0),
]


def inputs(dtype=torch.float64):
    product, norms = torch.randn(5, 3, 2, 2, dtype=dtype), torch.rand(5, 1, 2, 2, dtype=dtype) + 0.2
    radii = torch.tensor([0.4, 0.71, 1.3], dtype=dtype).reshape(3, 1, 1)
    return [t.requires_grad_() for t in (product, norms, radii, torch.randn(3, 1, 1, dtype=dtype))]


@pytest.mark.parametrize("magnitude", MEMBERS, ids=repr)
@pytest.mark.parametrize("tile", [8, 2**16])
def test_value_and_both_derivatives(magnitude, tile, monkeypatch):
    monkeypatch.setattr(tiling, "TILE", tile)
    product, norms, radii, bias = inputs()
    plain = product * magnitude.gain_within(norms, radii)
    assert torch.allclose(apply_radius_epilogue(product, norms, radii, bias, magnitude), plain + bias)
    assert torch.allclose(apply_radius_epilogue(product, norms, radii, None, magnitude), plain)
    call = lambda *t: apply_radius_epilogue(*t, magnitude)
    assert torch.autograd.gradcheck(call, (product, norms, radii, bias))
    if tile == 8:
        assert torch.autograd.gradgradcheck(call, (product, norms, radii, bias))


@pytest.mark.parametrize("magnitude", MEMBERS, ids=repr)
def test_a_norm_at_the_radius_has_the_slopes_of_autograd(magnitude):
    product, norms, radii, _ = inputs()
    norms = radii.detach().reshape(1, 3, 1, 1).expand(5, 3, 2, 2).clone().requires_grad_()
    found = torch.autograd.grad(
        apply_radius_epilogue(product, norms, radii, None, magnitude).sum(), (product, norms, radii)
    )
    plain = torch.autograd.grad((product * magnitude.gain_within(norms, radii)).sum(), (product, norms, radii))
    for a, b in zip(found, plain, strict=True):
        assert torch.allclose(a, b)


@pytest.mark.parametrize("magnitude", MEMBERS, ids=repr)
@pytest.mark.parametrize("length", [0.0, 1e-30, 1e-7, 1e-6])
def test_short_patches_have_the_slopes_of_autograd(magnitude, length):
    product, norms, radii, _ = inputs(torch.float32)
    norms = torch.full_like(norms, length).requires_grad_()
    found = torch.autograd.grad(
        apply_radius_epilogue(product, norms, radii, None, magnitude).sum(), (product, norms, radii)
    )
    plain = torch.autograd.grad((product * magnitude.gain_within(norms, radii)).sum(), (product, norms, radii))
    for a, b in zip(found, plain, strict=True):
        assert torch.isfinite(a).all()
        # For short x, ∂f/∂‖x‖ is the rounding error of f divided by ‖x‖.
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-5 if length == 0 or a is not found[1] else 1e-6 / length)


def test_digits_of_the_tanh_by_its_exponential():
    norms = torch.logspace(-6, 3, 20001).reshape(-1, 1)
    radii, out = torch.tensor([1e-3, 0.7, 30.0]), torch.empty(20001, 3)
    magnitudes.Tanh(2.0).gain_into(norms, radii, out)
    wide = norms.double().numpy()
    expected = 2 * np.tanh(wide / radii.double().numpy()) / wide
    assert np.abs(out.numpy() / expected - 1).max() <= 5 * 2**-23


def test_unsupported_arguments_are_left_to_autograd():
    product, norms, radii, bias = inputs()
    for wrong in (product.float(), product[:0], product[0]):
        assert apply_radius_epilogue(wrong, norms, radii, bias, MEMBERS[0]) is None
    many = torch.func.vmap(lambda p: p * float(apply_radius_epilogue(p, norms[0], radii, bias, MEMBERS[0]) is None))(
        product
    )
    assert torch.equal(many, product)


@pytest.mark.parametrize("magnitude", [magnitudes.Sphere(), magnitudes.Tanh(), magnitudes.Seg()], ids=repr)
@pytest.mark.parametrize("angle", [None, torch.nn.Identity()], ids=["tiles", "user's own"])
def test_a_graph_that_is_kept_gives_the_same_gradients_again(magnitude, angle, monkeypatch):
    monkeypatch.setattr(tiling, "TILE", 64)
    layer = Conv2d(3, 4, 3, padding=1, magnitude=magnitude, angular=angle)
    x = torch.randn(4, 3, 6, 6, requires_grad=True)
    wanted = (x, *layer.parameters())
    loss = layer(x).square().sum()
    first = torch.autograd.grad(loss, wanted, retain_graph=True)
    second = torch.autograd.grad(loss, wanted, retain_graph=True)
    last = torch.autograd.grad(loss, wanted)
    for a, b, c in zip(first, second, last, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)


@pytest.mark.parametrize("magnitude", [magnitudes.Sphere(), magnitudes.Tanh(), magnitudes.Ball()], ids=repr)
@pytest.mark.parametrize("g", [angular.Cosine(), angular.Sigmoid(0.3)], ids=repr)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_in_tiles_is_single_precision_rounded(magnitude, g, dtype, monkeypatch):
    monkeypatch.setattr(tiling, "TILE", 64)
    layer = Conv2d(3, 4, 3, padding=1, magnitude=magnitude, angular=g)
    half = Conv2d(3, 4, 3, padding=1, magnitude=magnitude, angular=g, dtype=dtype)
    half.load_state_dict(layer.state_dict())
    layer.load_state_dict(half.state_dict())
    x = torch.randn(4, 3, 6, 6).to(dtype)
    results = []
    for module, leaf in ((half, x.clone().requires_grad_()), (layer, x.float().requires_grad_())):
        out = module(leaf)
        results.append((out, *torch.autograd.grad(out.float().square().sum(), (leaf, *module.parameters()))))
    assert results[0][0].dtype == dtype
    for a, b in zip(*results, strict=True):
        assert torch.allclose(a.float(), b, rtol=0.1, atol=0.03 * b.abs().max().item())


def test_the_arriving_gradient_is_left_as_it_is():
    for magnitude in (magnitudes.Sphere(), magnitudes.Tanh()):
        layer = Conv2d(3, 4, 3, padding=1, magnitude=magnitude)
        x = torch.randn(4, 3, 6, 6, requires_grad=True)
        grad = torch.randn(4, 4, 6, 6)
        before = grad.clone()
        out = layer(x)
        value = out.detach().clone()
        out.backward(grad)
        assert torch.equal(grad, before)
        assert torch.equal(out, value)
