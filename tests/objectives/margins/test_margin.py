import math

import numpy as np
import pytest
import torch

from hypersphere import angular
from hypersphere.objectives.margins import Context, Margin, NoMargin
from hypersphere.objectives.margins.extension import extended
from hypersphere.objectives.margins.margin import number
from tests.objectives.contracts import ANGLES, MarginContract


class TestNoMargin(MarginContract):
    margin = NoMargin()
    formula = staticmethod(np.cos)

    def test_gives_g(self):
        cos = torch.linspace(-1, 1, 9)
        assert torch.equal(self.margin.target(cos, Context(angular.Linear())), angular.Linear()(cos))
        assert torch.equal(self.margin.others(cos[None], Context(angular.Linear())), angular.Linear()(cos[None]))


def test_a_margin_by_default_changes_nothing():
    cos = torch.linspace(-1, 1, 9)
    assert torch.equal(Margin().target(cos), cos)


@pytest.mark.parametrize(
    "g", [angular.Linear(), angular.Sigmoid(0.3), angular.SquareCosine(), angular.Cosine()], ids=repr
)
@pytest.mark.parametrize(("m1", "m2"), [(1, 0), (3, 0), (4, 0), (2.5, 0), (1, 0.5), (1.5, 1.0), (2, 3.0)])
def test_every_g_is_extended_continuously_and_never_exceeds_itself(g, m1, m2):
    cos = torch.from_numpy(np.cos(ANGLES))
    psi = extended(cos, m1, m2, g)
    u = m1 * ANGLES + m2
    k = np.minimum(np.floor(u / math.pi), math.ceil(m1 + m2 / math.pi) - 1)
    expected = g(torch.from_numpy(np.cos(u - k * math.pi))) - 2 * torch.from_numpy(k)
    # Where a piece ends, g is read off a cosine of ±1, which carries half of the digits of its angle.
    assert (psi - expected).abs().max() <= 1e-6
    assert (psi.diff() <= 1e-6).all()
    assert (psi <= g(cos) + 1e-6).all()


def test_a_custom_g_that_does_not_span_two():
    g = angular.as_angular(lambda cos: 3 * cos + 1)
    cos = torch.cos(torch.linspace(0, math.pi, 2001, dtype=torch.float64))
    assert torch.allclose(extended(cos, 2, 0, g), 3 * extended(cos, 2, 0, angular.Cosine()) + 1)


@pytest.mark.untyped
@pytest.mark.parametrize("value", [0.5, -1, math.nan, math.inf, "4", None, True])
def test_number_refuses(value):
    with pytest.raises(ValueError, match="margin m must be a number ≥ 1"):
        number("m", value, 1)
