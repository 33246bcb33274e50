import math

import numpy as np
import pytest
import torch

from hypersphere.objectives.margins import AdditiveAngle, AdditiveCosine
from tests.objectives.contracts import MarginContract


class TestAdditiveCosine(MarginContract):
    margin = AdditiveCosine(0.35)

    def formula(self, theta):
        return np.cos(theta) - 0.35


class TestAdditiveAngle(MarginContract):
    margin = AdditiveAngle(0.5)

    def formula(self, theta):
        return np.where(theta + 0.5 <= math.pi, np.cos(theta + 0.5), -np.cos(theta + 0.5) - 2)

    def test_is_below_minus_one_past_the_fallback(self):
        beyond = torch.cos(torch.linspace(math.pi - 0.49, math.pi, 50, dtype=torch.float64))
        assert (self.margin.target(beyond) < -1).all()


class TestLargeAngle(MarginContract):
    margin = AdditiveAngle(3.0)

    def formula(self, theta):
        return np.where(theta + 3.0 <= math.pi, np.cos(theta + 3.0), -np.cos(theta + 3.0) - 2)


@pytest.mark.parametrize("margin", [AdditiveCosine(0), AdditiveAngle(0), AdditiveAngle(0.0)], ids=repr)
def test_zero_is_no_margin(margin):
    cos = torch.linspace(-1, 1, 101)
    assert torch.equal(margin.target(cos), cos)


@pytest.mark.parametrize("m", [-0.1, math.nan, math.inf])
@pytest.mark.parametrize("kind", [AdditiveCosine, AdditiveAngle])
def test_refuses(kind, m):
    with pytest.raises(ValueError, match="margin m must be a number ≥ 0"):
        kind(m)


def test_an_angle_in_degrees_is_refused():
    with pytest.raises(ValueError, match=r"below 3\.14159, got 28\.6"):
        AdditiveAngle(28.6)
