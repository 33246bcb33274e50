import pytest
import torch
from torch import nn

from hypersphere.orthogonal import finetune
from hypersphere.orthogonal.finetuning import rotated
from hypersphere.orthogonal.finetuning.block_rotation import skew_cayley
from hypersphere.orthogonal.finetuning.rotated import apply_rotated_linear
from tests.orthogonal.finetuning.contracts import shake

LAYERS = {
    "inputs rotated": (lambda: nn.Linear(128, 128), (64, 128)),
    "weight rotated": (lambda: nn.Linear(32, 128), (64, 32)),
    "convolution": (lambda: nn.Conv2d(16, 32, 3), (4, 16, 8, 8)),
}
every_layer = pytest.mark.parametrize("kind", LAYERS)


def kept(layer, x):
    """Count the numbers saved for backward, without parameters and input. Also return the output."""
    own = {p.untyped_storage().data_ptr() for p in layer.parameters()} | {x.untyped_storage().data_ptr()}
    found = {}

    def pack(tensor):
        if tensor.untyped_storage().data_ptr() not in own:
            found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes() // 4
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = layer(x)
    return sum(found.values()), y


def build(kind):
    make, shape = LAYERS[kind]
    torch.manual_seed(0)
    layer = shake(finetune(make(), "poet", block=8, classifier=False, generator=torch.Generator().manual_seed(1)))
    return layer, torch.randn(shape, requires_grad=True)


@every_layer
def test_poet_keeps_its_input_and_at_most_its_weight(kind, monkeypatch):
    layer, x = build(kind)
    ours, _ = kept(layer, x)
    monkeypatch.setattr(rotated, "checkpoint", lambda function, *args, **_: function(*args))
    stored, _ = kept(layer, x)
    weight = layer.parametrizations.weight.original.numel()
    assert ours <= (0 if kind == "inputs rotated" else weight)
    assert stored >= ours + 2 * weight


@every_layer
def test_computing_again_gives_the_same_gradients(kind, monkeypatch):
    layer, x = build(kind)
    learned = [x, *(p for p in layer.parameters() if p.requires_grad)]
    _, y = kept(layer, x)
    g = torch.randn_like(y)
    ours = torch.autograd.grad(y, learned, g)
    monkeypatch.setattr(rotated, "checkpoint", lambda function, *args, **_: function(*args))
    for a, b in zip(ours, torch.autograd.grad(layer(x), learned, g), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("method", ["oft", "boft", "hra"])
@pytest.mark.parametrize("kind", ["weight rotated", "convolution"])
def test_learned_lengths_scale_the_rotated_neurons(method, kind):
    make, shape = LAYERS[kind]
    layer, x = make().double(), torch.randn(shape).double()
    y = layer(x)
    plain = layer.weight.detach().flatten(1)
    finetune(layer, method, block=4, lengths=True)
    assert torch.equal(layer(x), y)
    shake(layer)
    change = layer.parametrizations.weight[0].change
    expected = change.lengths[0] * (plain @ change.inputs.double().matrix()[0].T)
    assert torch.allclose(layer.weight.flatten(1), expected, atol=1e-10)
    compute = nn.functional.linear if isinstance(layer, nn.Linear) else nn.functional.conv2d
    assert torch.allclose(layer(x), compute(x, layer.weight, layer.bias), atol=1e-10)


@pytest.mark.parametrize("tokens", [3, 50])
@pytest.mark.parametrize("inputs", [True, False])
def test_the_rotated_product_equals_the_dense_product_with_its_gradients(tokens, inputs):
    weight, bias = torch.randn(9, 8, dtype=torch.float64), torch.randn(9, dtype=torch.float64, requires_grad=True)
    x = torch.randn(2, tokens, 8, dtype=torch.float64, requires_grad=inputs)
    raw = torch.randn(1, 2, 6, dtype=torch.float64, requires_grad=True)
    g = torch.randn(2, tokens, 9, dtype=torch.float64)
    leaves = [t for t in (x, bias, raw) if t.requires_grad]
    y = apply_rotated_linear(x, weight, bias, skew_cayley(raw, 4))
    expected = x @ torch.block_diag(*skew_cayley(raw, 4)[0]) @ weight.T + bias
    assert torch.allclose(y, expected, atol=1e-12)
    for a, b in zip(torch.autograd.grad(y, leaves, g), torch.autograd.grad(expected, leaves, g), strict=True):
        assert torch.allclose(a, b, atol=1e-11)


def test_the_rotated_product_without_bias():
    weight, x = torch.randn(3, 8), torch.randn(5, 8, requires_grad=True)
    eye = torch.eye(4).expand(1, 2, 4, 4)
    assert torch.equal(apply_rotated_linear(x, weight, None, eye), torch.nn.functional.linear(x, weight))
