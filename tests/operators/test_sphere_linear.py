"""The fused fully connected layer: its derivative, and when it is chosen."""

import pytest
import torch
import torch.nn.functional as F

from hypersphere import angular
from hypersphere.geometry import products
from hypersphere.operators import Linear, magnitudes, operator_layer, sphere_linear

ANGLES = {
    "cosine": angular.Cosine(),
    "linear": angular.Linear(),
    "square": angular.SquareCosine(),
    "power": angular.Power(3),
}


@pytest.fixture
def fused(monkeypatch):
    """Record the results of the fused function; None where it declined."""
    found = []

    def spy(*arguments):
        found.append(sphere_linear.apply_sphere_linear(*arguments))
        return found[-1]

    monkeypatch.setattr(operator_layer, "apply_sphere_linear", spy)
    return found


@pytest.mark.parametrize("alpha", [1.0, 1.7])
@pytest.mark.parametrize("name", ANGLES)
def test_derivatives(name, alpha):
    generator = torch.Generator().manual_seed(0)
    x, w, b = (
        torch.randn(*shape, dtype=torch.double, generator=generator).requires_grad_()
        for shape in ((2, 3, 5), (4, 5), (4,))
    )
    function = lambda *inputs: sphere_linear.apply_sphere_linear(*inputs, ANGLES[name], alpha)
    cos = torch.einsum("...d,cd->...c", F.normalize(x, dim=-1), F.normalize(w, dim=-1))
    assert torch.allclose(function(x, w, b), alpha * ANGLES[name](cos) + b, atol=1e-14)
    assert torch.autograd.gradcheck(function, (x, w, b))
    assert torch.autograd.gradcheck(lambda x, w: function(x, w, None), (x, w))
    assert torch.autograd.gradgradcheck(function, (x, w, b), atol=1e-4)


def test_float32_agrees_with_float64(fused):
    torch.manual_seed(0)
    layer, x = Linear(64, 32, angular=angular.Linear()), torch.randn(16, 64, requires_grad=True)
    gradient = torch.randn(16, 32)
    layer(x).backward(gradient)
    wide, y = Linear(64, 32, dtype=torch.double, angular=angular.Linear()), x.detach().double().requires_grad_()
    wide.load_state_dict(layer.state_dict())
    wide(y).backward(gradient.double())
    assert [result is not None for result in fused] == [True, True]
    for mine, exact in ((x, y), (layer.weight, wide.weight), (layer.bias, wide.bias)):
        assert torch.allclose(mine.grad.double(), exact.grad, atol=1e-5)


def test_short_and_long_vectors_are_refused(fused):
    layer = Linear(3, 2)
    for length in (0.0, 1e-7, 1e14):
        assert torch.isfinite(layer(torch.full((1, 3), length))).all()
        assert fused.pop() is None
    with torch.no_grad():
        layer.weight[0] = 0
    assert layer(torch.ones(1, 3))[0, 0] == layer.bias[0]
    assert fused.pop() is None
    assert layer(torch.full((1, 3), torch.nan)).isnan().all()


@pytest.mark.parametrize(
    "layer",
    [
        Linear(3, 2, angular=angular.Sigmoid(learnable="layer")),
        Linear(3, 2, angular=lambda cos: cos**3),
    ],
)
def test_a_learned_angle_or_one_without_a_slope_is_left_to_autograd(layer, fused):
    layer(torch.ones(1, 3)).sum().backward()
    assert fused == [None]


def test_only_for_an_eager_sphere_of_one_dtype(fused):
    x = torch.ones(1, 3)
    Linear(3, 2, magnitude=magnitudes.Tanh())(x)
    Linear(3, 2, magnitude=magnitudes.Sphere(weighted="linear"))(x)
    Linear(3, 2, dtype=torch.bfloat16)(x.bfloat16())
    with torch.autocast("cpu", torch.bfloat16):
        Linear(3, 2)(x)
    torch.func.vmap(Linear(3, 2))(x)
    with torch.no_grad():
        Linear(3, 2)(x)
    assert fused == []
    Linear(3, 2)(x)
    assert len(fused) == 1


@pytest.mark.parametrize("g", [angular.Cosine(), angular.Linear(), angular.Power(3)])
def test_inference_leaves_a_product_that_others_may_have_alone(g):
    kept, x, weight = [], torch.randn(4, 3), torch.randn(2, 3)

    def product(x, kernel, bias):
        kept.append(F.linear(x, kernel, bias))
        kept.append(kept[0].clone())
        return kept[0]

    with torch.no_grad():
        y = operator_layer.apply_operator(x, weight, torch.ones(2), magnitudes.Sphere(2.0), g, product=product)
    assert torch.equal(kept[0], kept[1])
    cos = F.normalize(x) @ F.normalize(weight).T
    assert torch.allclose(y, 2 * g(cos) + 1, atol=1e-5)


@pytest.mark.parametrize("name", ANGLES)
@pytest.mark.parametrize("faster", [False, True])
def test_a_large_layer_agrees_with_float64_by_either_library(monkeypatch, name, faster):
    monkeypatch.setattr(products, "is_onednn_faster", lambda: faster and products._is_onednn_faster())
    generator = torch.Generator().manual_seed(0)
    shapes = ((96, 256), (192, 256), (192,))
    assert products.MIN_MULTIPLICATIONS <= 96 * 256 * 192
    inputs = [torch.randn(*shape, generator=generator) for shape in shapes]
    upstream = torch.randn(96, 192, generator=generator)
    found = []
    for dtype in (torch.float32, torch.float64):
        leaves = [t.to(dtype, copy=True).requires_grad_() for t in inputs]
        y = sphere_linear.apply_sphere_linear(*leaves, ANGLES[name], 1.0)
        found.append([y, *torch.autograd.grad(y, leaves, upstream.to(dtype))])
    for single, double in zip(*found, strict=True):
        assert torch.allclose(single.double(), double, rtol=1e-4, atol=1e-4)
