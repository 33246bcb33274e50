import pytest
import torch
from torch import nn

from hypersphere.operators import SphereConv2d, orthogonality, orthonormality


def brute(weight, target):
    gram = weight @ weight.T
    return (gram - target(gram)).square().sum()


@pytest.fixture
def net():
    return nn.Sequential(SphereConv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 5))


@pytest.mark.parametrize(
    ("penalty", "target"),
    [(orthonormality, lambda g: torch.eye(len(g))), (orthogonality, lambda g: torch.diag(g.diagonal()))],
)
def test_sums_over_the_layers(net, penalty, target):
    expected = brute(net[0].weight.flatten(1), target) + brute(net[2].weight, target)
    assert torch.allclose(penalty(net), expected)
    assert torch.allclose(penalty(net, skip=["2"]), brute(net[0].weight.flatten(1), target))
    assert torch.allclose(penalty(net, only=[nn.Linear]), brute(net[2].weight, target))


def test_groups_count_by_themselves():
    layer = nn.Conv2d(4, 6, 1, groups=2, bias=False)
    parts = sum(brute(w, lambda g: torch.eye(len(g))) for w in layer.weight.flatten(1).chunk(2))
    assert torch.allclose(orthonormality(layer), parts)


def test_descent_makes_neurons_orthonormal():
    layer = SphereConv2d(3, 4, 3)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        orthonormality(layer).backward()
        optimizer.step()
    assert orthonormality(layer) < 1e-4


def test_refuses_a_model_without_neurons():
    with pytest.raises(ValueError, match="a penalty needs a model with Linear or Conv layers, got ReLU"):
        orthonormality(nn.ReLU())
