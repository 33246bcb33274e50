import copy
import pickle

import pytest
import torch
from torch import nn

from hypersphere.operators import Conv2d, Linear, SphereConv2d, convert, restore
from hypersphere.operators.conversion import explain_obstacle, find_operator_class, find_plain_class


class Inherits(nn.Linear):
    pass


class Louder(nn.Linear):
    def forward(self, input):
        return 2 * super().forward(input)


class OwnLinear(nn.Module):
    """A class that computes F.linear but does not inherit from nn.Linear."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3))
        self.bias = None

    def forward(self, x):
        return x @ self.weight.T


class ScaledLinear(OwnLinear):
    def forward(self, x):
        return 3 * super().forward(x)


class PairLinear(OwnLinear):
    def forward(self, x, y):
        return x @ self.weight.T + y


def test_torch_layers_have_their_operators():
    assert find_operator_class(nn.Linear(2, 2)) is Linear
    assert find_operator_class(nn.Conv2d(2, 2, 1)) is Conv2d
    assert find_plain_class(SphereConv2d(2, 2, 1)) is nn.Conv2d


@pytest.mark.parametrize(
    "module", [Louder(3, 4), ScaledLinear(), PairLinear(), nn.Embedding(3, 4), nn.ConvTranspose2d(2, 2, 1)]
)
def test_another_forward_is_left_alone(module):
    assert find_operator_class(module) is None
    assert "is not a Conv or Linear layer, or has a forward of its own" in explain_obstacle(module, "")


@pytest.mark.parametrize("make", [lambda: Inherits(3, 4), OwnLinear])
def test_a_class_that_computes_the_same_becomes_an_operator_of_its_own_kind(make):
    module, x = make(), torch.randn(5, 3)
    kind, before = type(module), module(x)
    convert(module)
    assert isinstance(module, kind)
    assert not torch.allclose(module(x), before)
    assert torch.allclose(module(x), module(2 * x), atol=1e-6)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert type(other) is type(module)
        assert torch.equal(other(x), module(x))
    restore(module)
    assert type(module) is kind
    assert torch.equal(module(x), before)


def test_reasons_against_a_conversion():
    parametrized = nn.utils.parametrizations.weight_norm(nn.Linear(3, 4))
    assert "convert first, then parametrize" in explain_obstacle(parametrized, "")
    assert "run the network once first" in explain_obstacle(nn.LazyLinear(3), "")
    assert explain_obstacle(Linear(3, 4), "") == "already an operator"
    assert "without calling it" in explain_obstacle(nn.MultiheadAttention(4, 2), "out_proj")
    assert explain_obstacle(nn.Linear(3, 4), "") is None
    assert find_plain_class(nn.utils.parametrizations.weight_norm(Linear(3, 4))) is None
