import math

import numpy as np
import pytest
import torch

from hypersphere import angular
from hypersphere.objectives.functional import margin_softmax
from hypersphere.objectives.margins import (
    AdditiveAngle,
    AdditiveCosine,
    Context,
    Margin,
    NoMargin,
    Strength,
    TwoSided,
)
from hypersphere.objectives.margins.extension import continue_past_pi
from hypersphere.objectives.margins.margin import EMPTY_CONTEXT, check_strength
from hypersphere.objectives.strengths import Drawn
from tests.objectives.contracts import ANGLES, MarginContract


class TestNoMargin(MarginContract):
    margin = NoMargin()
    formula = staticmethod(np.cos)

    def test_gives_g(self):
        cos = torch.linspace(-1, 1, 9)
        assert torch.equal(self.margin.target(cos, Context(angular.Linear())), angular.Linear()(cos))
        assert torch.equal(self.margin.others(cos[None], Context(angular.Linear())), angular.Linear()(cos[None]))


def test_a_slope_is_not_inherited_by_who_changes_the_hook():
    class Lowered(AdditiveCosine):
        def target(self, cos, context=EMPTY_CONTEXT):
            return super().target(cos, context) - 0.1

    class Raised(AdditiveCosine):
        def others(self, cos, context=EMPTY_CONTEXT):
            return context.g(cos) + 0.1

    cos = torch.zeros(2)
    assert Lowered(0.2).target_with_slope(cos) is None
    assert Lowered(0.2).others_with_slope(cos[None]) is not None
    assert Raised(0.2).target_with_slope(cos) is not None
    assert Raised(0.2).others_with_slope(cos[None]) is None


def test_a_strength_with_a_gradient_leaves_the_slope_to_autograd():
    class ByNorm(Strength):
        least, most = 0.0, 0.5

        def forward(self, context):
            return 0.5 * context.norms.clamp(max=1)

    context = Context(norms=torch.ones(2))
    for kind in (AdditiveCosine, AdditiveAngle, TwoSided):
        assert kind(ByNorm()).target_with_slope(torch.zeros(2), context) is None
        assert kind(Drawn()).target_with_slope(torch.zeros(2), context) is not None
    x, w, y = torch.randn(4, 3).double() / 4, torch.randn(5, 3).double(), torch.tensor([0, 1, 2, 4])
    found = []
    for chunk in (None, "auto"):
        leaf = x.clone().requires_grad_()
        loss = margin_softmax(leaf, w, y, margin=AdditiveCosine(ByNorm()), chunk=chunk)
        found.append(torch.autograd.grad(loss, leaf)[0])
    assert torch.allclose(*found)


def test_a_margin_by_default_changes_nothing():
    cos = torch.linspace(-1, 1, 9)
    assert torch.equal(Margin().target(cos), cos)


@pytest.mark.parametrize(
    "g", [angular.Linear(), angular.Sigmoid(0.3), angular.SquareCosine(), angular.Cosine()], ids=repr
)
@pytest.mark.parametrize(("m1", "m2"), [(1, 0), (3, 0), (4, 0), (2.5, 0), (1, 0.5), (1.5, 1.0), (2, 3.0)])
def test_every_g_is_extended_continuously_and_never_exceeds_itself(g, m1, m2):
    cos = torch.from_numpy(np.cos(ANGLES))
    psi = continue_past_pi(cos, m1, m2, g)
    u = m1 * ANGLES + m2
    k = np.minimum(np.floor(u / math.pi), math.ceil(m1 + m2 / math.pi) - 1)
    expected = g(torch.from_numpy(np.cos(u - k * math.pi))) - 2 * torch.from_numpy(k)
    # At the end of a piece, g comes from a cosine near ±1, which has half of the digits of its angle.
    assert (psi - expected).abs().max() <= 1e-6
    assert (psi.diff() <= 1e-6).all()
    assert (psi <= g(cos) + 1e-6).all()


def test_a_custom_g_that_does_not_span_two():
    g = angular.as_angular(lambda cos: 3 * cos + 1)
    cos = torch.cos(torch.linspace(0, math.pi, 2001, dtype=torch.float64))
    assert torch.allclose(continue_past_pi(cos, 2, 0, g), 3 * continue_past_pi(cos, 2, 0, angular.Cosine()) + 1)


@pytest.mark.untyped
@pytest.mark.parametrize("value", [0.5, -1, math.nan, math.inf, "4", None, True])
def test_number_refuses(value):
    with pytest.raises(ValueError, match="margin m must be a number ≥ 1"):
        check_strength("m", value, 1)
