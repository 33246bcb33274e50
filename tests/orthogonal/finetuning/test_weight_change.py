"""The interface of weight changes: defaults of the base class, and subclasses of all methods."""

import inspect

import pytest
import torch
from torch import nn

from hypersphere.orthogonal.finetuning.tuning_method import KINDS, TuningMethod
from hypersphere.orthogonal.finetuning.weight_change import WeightChange, WeightLayout


class Scaled(WeightChange):
    """A minimal change: one factor for all rows."""

    def __init__(self, method=None, layout=None, rows=None, like=None, generator=None):
        nn.Module.__init__(self)
        self.factor = nn.Parameter(torch.ones(()))

    @classmethod
    def describe(cls, method, numbers):
        return "a factor"

    @property
    def cost(self):
        return float("inf")

    def forward(self, rows):
        return rows * self.factor

    def reset(self, generator=None):
        nn.init.ones_(self.factor)

    def rewind(self, t):
        self.factor.data = 1 + t * (self.factor.data - 1)

    def count(self, freedom):
        return 1


def test_defaults_of_a_change():
    change, method = Scaled(), TuningMethod("lora")
    assert Scaled.explain_misfit(method, 7) is None
    assert Scaled.explain_quantized(method) is None
    assert change.error() is None
    assert change.get_generators() is None
    assert not change.redrawable
    assert [(p is change.factor, factor) for p, factor in change.list_rate_factors()] == [(True, 1.0)]


def test_a_change_without_compute_around_needs_the_weight():
    with pytest.raises(TypeError, match="Scaled needs the weight itself"):
        Scaled().compute_outputs(torch.zeros(2, 3), torch.zeros(4, 3), None)


def test_outputs_are_computed_around_the_frozen_layer():
    class Around(Scaled):
        def compute_around(self, x, base, bias):
            return base(x * self.factor)

    change = Around()
    nn.init.constant_(change.factor, 2.0)
    x, rows, bias = torch.randn(5, 3), torch.randn(4, 3), torch.randn(4)
    torch.testing.assert_close(change.compute_outputs(x, rows, bias), x @ (2 * rows).T + bias)


def test_an_incomplete_change_cannot_be_made():
    class Incomplete(WeightChange):
        pass

    with pytest.raises(TypeError, match="abstract"):
        Incomplete()


@pytest.mark.parametrize("name", KINDS)
def test_every_method_starts_with_no_change(name):
    kind, method, rows = KINDS[name].change, TuningMethod(name), torch.randn(6, 32)
    assert not inspect.isabstract(kind)
    change = kind(method, WeightLayout(6, 32), rows, rows, torch.Generator().manual_seed(0))
    assert torch.equal(change(rows[None]), rows[None])
    assert change.count(freedom=False) == sum(parameter.numel() for parameter in change.parameters())
    assert isinstance(kind.describe(method, 32), str)
