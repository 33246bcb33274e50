import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from hypersphere.neurons import get_change_report
from hypersphere.orthogonal import Int8Linear, add_task, factorize, finetune, merge, overparameterize, use_task
from hypersphere.orthogonal._merge import compute_plain_weights
from tests.export import onnx_outputs
from tests.orthogonal.contracts import build


def test_a_model_is_plain_again():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 5), nn.Linear(5, 2))
    keys = list(model.state_dict())
    kinds = [type(m) for m in model.modules()]
    x = torch.randn(2, 3, 4, 4)
    overparameterize(model, "gram_schmidt")
    y = model.eval()(x)
    assert merge(model) is model
    assert list(model.state_dict()) == keys
    assert [type(m) for m in model.modules()] == kinds
    assert torch.allclose(model(x), y, atol=1e-6)
    other = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 5), nn.Linear(5, 2)).eval()
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x), model(x))


def test_a_frozen_weight_is_frozen_again():
    layer = nn.Linear(3, 2)
    layer.weight.requires_grad_(False)
    overparameterize(layer)
    assert layer.parametrizations.weight[0].rotation.raw.requires_grad
    assert not merge(layer).weight.requires_grad
    assert layer.bias.requires_grad


def test_the_active_task_is_merged():
    layer, x = build("conv2d")
    overparameterize(layer)
    y = layer(x)
    add_task(layer, "b")
    nn.init.normal_(use_task(layer, "b").parametrizations.weight[0].rotation.raw)
    z = layer(x)
    assert not torch.allclose(y, z)
    assert torch.allclose(merge(layer)(x), z, atol=1e-5)


def test_trained_neurons_merge_as_well():
    layer, x = build("conv2d")
    overparameterize(layer, "lowdin", train_neurons=True)
    torch.optim.SGD(layer.parameters(), lr=0.1).step(lambda: layer(x).square().mean().backward())
    y = layer(x)
    assert torch.allclose(merge(layer)(x), y, atol=1e-6)


@pytest.mark.parametrize("change", [overparameterize, factorize, lambda net: finetune(net, block=4)])
def test_plain_weights_are_those_of_the_changed_network(change):
    network = lambda: nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 12), nn.Linear(12, 5))
    net, plain, x = change(network()), network(), torch.randn(2, 4, 4, 4)
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.3)
    plain.load_state_dict(compute_plain_weights(net))
    assert torch.allclose(plain(x), net(x), atol=1e-4)
    assert compute_plain_weights(plain).keys() == plain.state_dict().keys()


def test_plain_weights_of_a_quantized_layer_are_refused():
    net = finetune(nn.Sequential(Int8Linear.of(nn.Linear(8, 40))), block=4, classifier=False)
    with pytest.raises(ValueError, match="layer '0' has a quantized weight"):
        compute_plain_weights(copy.deepcopy(net))


def test_progressive_training():
    layer, x = build("linear wide")
    for target in (torch.randn(4, 4), torch.randn(4, 4)):
        start = layer.weight.detach().clone()
        overparameterize(layer)
        optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
        losses = []
        for _ in range(40):
            optimizer.zero_grad()
            loss = (layer(x) - target).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        merge(layer)
        assert losses[-1] < 0.8 * losses[0]
        assert torch.allclose(layer.weight @ layer.weight.T, start @ start.T, atol=1e-5)
        assert not torch.allclose(layer.weight, start, atol=1e-2)


def test_other_parametrizations_survive_or_are_named():
    layer = overparameterize(nn.Linear(3, 3))
    parametrize.register_parametrization(layer, "bias", nn.Softplus())
    merge(layer)
    assert parametrize.is_parametrized(layer, "bias")
    assert isinstance(layer.weight, nn.Parameter)
    layer = overparameterize(nn.Linear(3, 3))
    parametrize.register_parametrization(layer, "weight", nn.Softplus())
    with pytest.raises(ValueError, match="another parametrization on top"):
        merge(layer)


def test_a_plain_model_has_nothing_to_merge():
    with pytest.raises(ValueError, match="has no over-parameterized or finetuned layer"):
        merge(nn.Linear(3, 3))


@pytest.mark.untyped
def test_a_merged_model_exports():
    layer, x = build("conv2d")
    merge(overparameterize(layer, "gram_schmidt"))
    assert torch.allclose(onnx_outputs(layer, x)[0], layer(x), atol=1e-5)


def test_only_and_skip_choose_what_is_merged():
    net = finetune(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 2)), block=4)
    x = torch.randn(3, 8)
    y = net(x)
    merge(net, skip="1")
    assert [nn.utils.parametrize.is_parametrized(layer) for layer in net] == [False, True, False]
    assert not net[0].weight.requires_grad  # the other layer is still being fine-tuned
    assert torch.allclose(net(x), y, atol=1e-6)
    assert get_change_report(net).skipped == {"1": "named in skip"}
    merge(net)
    assert all(p.requires_grad for p in net.parameters())
    with pytest.raises(ValueError, match="no layer of Sequential is left to merge"):
        merge(overparameterize(net), only="2")
