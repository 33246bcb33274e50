import pytest
import torch
from torch import nn

from hypersphere.operators import (
    GRU,
    LSTMCell,
    SphereConv2d,
    SphereLinear,
    convert,
    magnitudes,
    project_weights,
    project_weights_every,
    weighted_gradients,
)


@pytest.fixture
def net():
    return nn.Sequential(SphereConv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), SphereLinear(16, 5), nn.Linear(5, 2))


def test_projection_keeps_the_outputs_and_the_plain_layers(net):
    x, plain = torch.randn(2, 3, 4, 4), net[4].weight.detach().clone()
    before = net(x)
    project_weights(net, norm=3.0)
    assert torch.allclose(net(x), before, atol=1e-5)
    assert torch.allclose(net[0].weight.flatten(1).norm(dim=1), torch.full((4,), 3.0))
    assert torch.allclose(net[3].weight.norm(dim=1), torch.full((5,), 3.0))
    assert torch.equal(net[4].weight, plain)


@pytest.mark.parametrize("make", [lambda: LSTMCell(3, 4), lambda: GRU(3, 4, bidirectional=True)])
def test_projection_of_recurrent_weights(make):
    network = make()
    project_weights(network)
    weights = [p for p in network.parameters() if p.ndim == 2]
    assert all(torch.allclose(w.norm(dim=1), torch.ones(len(w))) for w in weights)


def test_projection_every_third_step(net):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    handle = project_weights_every(optimizer, net, steps=3)
    at_one = []
    for step in range(7):
        if step == 6:
            handle.remove()
        optimizer.zero_grad()
        net(torch.randn(2, 3, 4, 4)).square().sum().backward()
        optimizer.step()
        at_one.append(torch.allclose(net[3].weight.norm(dim=1), torch.ones(5), atol=1e-6))
    assert at_one == [False, False, True, False, False, True, False]


@pytest.mark.parametrize(
    "magnitude", [magnitudes.InnerProduct(), magnitudes.Tanh(weighted="tanh_product"), lambda w, x: w * x]
)
def test_refused_where_the_length_of_a_weight_matters(net, magnitude):
    convert(net, magnitude=magnitude, only=["4"])
    before = net[0].weight.detach().clone()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for action in (project_weights, weighted_gradients, lambda m: project_weights_every(optimizer, m, 3)):
        with pytest.raises(ValueError, match=r"needs operators without ‖w‖ in their magnitude, got .* at '4\.weight'"):
            action(net)
    assert torch.equal(net[0].weight, before)


def test_other_refusals(net):
    with pytest.raises(ValueError, match="needs a model with operators, got Linear without any"):
        project_weights(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="norm must be a number > 0, got 0"):
        project_weights(net, norm=0.0)
    with pytest.raises(ValueError, match="steps must be an integer ≥ 1, got 0"):
        project_weights_every(torch.optim.SGD(net.parameters(), lr=0.1), net, steps=0)
    with pytest.raises(ValueError, match=r"computed \(parametrized\) at 'weight'"):
        project_weights(nn.utils.parametrizations.orthogonal(SphereLinear(3, 3)))


def gradient(layer, x):
    layer.zero_grad()
    layer(x).sum().backward()
    return layer.weight.grad.clone()


def test_equations_4_17_and_4_18():
    x = torch.randn(1, 6, dtype=torch.float64)
    layer = SphereLinear(6, 1, bias=False, dtype=torch.float64)
    layer.weight.data *= 7
    w = layer.weight.detach()[0]
    what, xhat = w / w.norm(), x[0] / x[0].norm()
    tangent = xhat - (what @ xhat) * what
    assert torch.allclose(gradient(layer, x)[0], tangent / w.norm(), atol=1e-14)
    with weighted_gradients(layer):
        assert torch.allclose(gradient(layer, x)[0], tangent, atol=1e-14)
    assert torch.allclose(gradient(layer, x)[0], tangent / w.norm(), atol=1e-14)


def test_weighted_gradients_do_not_depend_on_the_lengths(net):
    x = torch.randn(2, 3, 4, 4)
    handles = weighted_gradients(net)
    net.eval()
    first = gradient(net[0], x)
    net[0].weight.data *= torch.tensor([0.1, 1.0, 5.0, 50.0]).reshape(4, 1, 1, 1)
    assert torch.allclose(gradient(net[0], x), first, atol=1e-5)
    handles.remove()
    assert not torch.allclose(gradient(net[0], x), first, atol=1e-5)


def test_weighted_gradients_of_accumulated_batches_add_up(net):
    layer, x = net[3], torch.randn(4, 16)
    weighted_gradients(layer)
    whole = gradient(layer, x)
    layer.zero_grad()
    for part in x.chunk(2):
        layer(part).sum().backward()
    assert torch.allclose(layer.weight.grad, whole, atol=1e-6)


def test_the_gradient_of_a_shared_weight_is_weighted_once():
    a, b = SphereLinear(4, 4, bias=False), SphereLinear(4, 4, bias=False)
    b.weight = a.weight
    assert len(weighted_gradients(nn.Sequential(a, b)).handles) == 1
