import pytest
import torch
from torch import nn

from hypersphere.orthogonal import finetune
from hypersphere.orthogonal.finetuning import rotated
from tests.orthogonal.finetuning.contracts import shake

LAYERS = {
    "inputs rotated": (lambda: nn.Linear(128, 128), (64, 128)),
    "weight rotated": (lambda: nn.Linear(32, 128), (64, 32)),
    "convolution": (lambda: nn.Conv2d(16, 32, 3), (4, 16, 8, 8)),
}
every_layer = pytest.mark.parametrize("kind", LAYERS)


def kept(layer, x):
    """The numbers that the forward pass keeps for the backward pass beside parameters and the input, and the output."""
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
