import pytest
import torch
from torch import nn

from hypersphere import angular
from hypersphere.operators import Conv2d, Linear, OperatorLayer, apply_operator, magnitudes
from tests import distributed
from tests.export import onnx_outputs
from tests.operators.contracts import ANGLES

EVERY = {
    name: getattr(magnitudes, name)()
    for name in ("Sphere", "Ball", "Tanh", "Linear", "Seg", "Log", "Mix", "InnerProduct")
}


class Everything(nn.Module):
    """Each magnitude in a convolution, with angles in turn, and two Linear layers."""

    def __init__(self):
        super().__init__()
        weighted = [
            magnitudes.Tanh(weighted="tanh_product"),
            magnitudes.Tanh(weighted="product_of_tanh"),
            magnitudes.Sphere(weighted="linear"),
        ]
        members = [
            *EVERY.values(),
            magnitudes.Tanh(),
            magnitudes.Seg(),
            *weighted,
        ]
        angles = [g for name, (g, _) in ANGLES.items() if name != "user"]
        self.convs = nn.ModuleList(
            [
                Conv2d(4, 4, 3, padding=1, groups=1 + i % 2, magnitude=h, angular=angles[i % 4])
                for i, h in enumerate(members)
            ]
        )
        self.linears = nn.ModuleList(
            [Linear(4, 5), Linear(4, 5, magnitude=magnitudes.Log(), angular=angular.Sigmoid(learnable="filter"))]
        )

    def forward(self, x):
        return tuple(layer(x).mean((2, 3)) for layer in self.convs) + tuple(
            layer(x.mean((2, 3))) for layer in self.linears
        )


@pytest.mark.untyped
def test_onnx_agrees():
    model, x = Everything(), torch.randn(2, 4, 6, 6)
    x[0, :, :3] = 0
    outputs = onnx_outputs(model, x)
    assert len(outputs) == 15
    for ours, theirs in zip(model(x), outputs, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)


@pytest.mark.slow  # inductor compiles for 15 seconds; test_epilogues always runs it on another operator
@pytest.mark.untyped
def test_inductor_agrees():
    torch._dynamo.reset()
    layers = nn.Sequential(Conv2d(3, 4, 3, padding=1))
    x, y = (torch.linspace(-1, 1, 2 * 3 * 36).reshape(2, 3, 6, 6).requires_grad_() for _ in range(2))
    torch.compile(layers, fullgraph=True)(x).square().sum().backward()
    grads = [p.grad.clone() for p in layers.parameters()]
    layers.zero_grad()
    layers(y).square().sum().backward()
    assert torch.allclose(x.grad, y.grad, atol=1e-5)
    assert all(torch.allclose(p.grad, g, atol=1e-4) for p, g in zip(layers.parameters(), grads, strict=True))


def _train(rank):
    torch.manual_seed(0)
    h, g = magnitudes.Tanh(), angular.Sigmoid(learnable="filter")
    net = nn.Sequential(Conv2d(3, 4, 3), nn.Flatten(), Linear(64, 5, magnitude=h, angular=g))
    model = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.randn(8, 3, 6, 6, generator=torch.Generator().manual_seed(1))[4 * rank : 4 * rank + 4]
    for _ in range(2):
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()
    model(data)
    return {name: value.clone() for name, value in net.state_dict().items()}


def test_distributed_training_keeps_the_processes_equal():
    first, second = distributed.run(_train)
    trained = [name for name in first if "running" not in name]
    assert {"0.weight", "2.weight", "2.magnitude.radius.log_rho", "2.angular.log_k"} <= set(trained)
    assert all(torch.equal(first[name], second[name]) for name in trained)


def test_an_angular_function_that_is_not_zero_at_ninety_degrees_gives_zero_at_a_zero_patch():
    layer = Linear(3, 2, bias=False, angular=lambda c: 1 + c)
    x = torch.zeros(2, 3, requires_grad=True)
    out = layer(x)
    out.sum().backward()
    assert (out == 0).all()
    assert torch.isfinite(x.grad).all()


def test_the_function_alone():
    x, w = torch.randn(4, 6, dtype=torch.float64), torch.randn(3, 6, dtype=torch.float64)
    out = apply_operator(x, w, torch.ones(3, dtype=torch.float64), EVERY["Sphere"], angular.Cosine())
    assert torch.allclose(out, nn.functional.cosine_similarity(x[:, None], w[None], dim=-1) + 1)


def test_per_sample_gradients():
    layer = Conv2d(2, 3, 3)
    x = torch.randn(4, 2, 5, 5)
    loss = lambda w, x: torch.func.functional_call(layer, {"weight": w}, (x[None],)).square().sum()
    each = torch.vmap(torch.func.grad(loss), (None, 0))(layer.weight.detach(), x)
    one = torch.func.grad(loss)(layer.weight.detach(), x[2])
    assert torch.allclose(each[2], one, atol=1e-6)


def test_the_base_class_says_what_is_missing():
    with pytest.raises(TypeError, match=r"abstract class OperatorLayer.*forward"):
        OperatorLayer()


def test_a_learned_k_per_filter_is_the_layers_own():
    g = angular.Sigmoid(learnable="filter")
    a, b = Conv2d(2, 3, 3, angular=g, dtype=torch.float64), Linear(2, 4, angular=g)
    assert a.angular.log_k.shape == (3,)
    assert a.angular.log_k.dtype == torch.float64
    assert b.angular.log_k.shape == (4,)
    a(torch.randn(1, 2, 4, 4, dtype=torch.float64)).sum().backward()
    assert (a.angular.log_k.grad != 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("g", ANGLES)
@pytest.mark.untyped
def test_inference_agrees_with_training(g, dtype):
    """Without gradients a layer skips some operations, except for zero and very short rows."""
    tolerance = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 0.0}[dtype]
    for magnitude in EVERY.values():
        layer = Linear(6, 40, magnitude=magnitude, angular=ANGLES[g][0]).to(dtype)
        for batch in (1, 2000):  # the second batch is computed in chunks
            x = torch.randn(batch, 6).to(dtype)
            for given in (x, torch.cat([x, 0 * x[:1], 1e-7 * x[:1]])):
                recorded = layer(given.clone().requires_grad_()).detach()
                with torch.no_grad():
                    found = layer(given)
                with torch.inference_mode():
                    again = layer(given)
                torch.testing.assert_close(found, recorded, atol=tolerance, rtol=tolerance)
                assert torch.equal(found, again)


@pytest.mark.parametrize("options", [{}, {"groups": 4}, {"groups": 2, "stride": 2}, {"kernel_size": 1}])
@pytest.mark.untyped
def test_inference_of_convolutions_agrees_with_training(options):
    layer = Conv2d(4, 8, **{"kernel_size": 3, "padding": 1} | options)
    x = torch.randn(3, 4, 7, 7)
    x[0] = 0
    with torch.no_grad():
        found = layer(x)
        layer.weight.data.mul_(torch.rand_like(layer.weight))
        changed = layer(x)
    torch.testing.assert_close(changed, layer(x.requires_grad_()).detach(), atol=2e-6, rtol=2e-6)
    assert not torch.equal(found, changed)
