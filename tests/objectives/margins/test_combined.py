import math

import numpy as np
import pytest
import torch

from hypersphere.objectives.margins import AdditiveAngle, AdditiveCosine, Combined, Multiplicative
from tests.objectives.contracts import MarginContract, waves


class TestCombined(MarginContract):
    margin = Combined(1.5, 0.3, 0.2)

    def formula(self, theta):
        u = 1.5 * theta + 0.3
        k = np.floor(u / math.pi)
        return (-1.0) ** k * np.cos(u) - 2 * k - 0.2


class TestThreeAtOnce(MarginContract):
    margin = Combined(3, 0.0, 0.1)

    def formula(self, theta):
        return waves(theta, 3) - 0.1


@pytest.mark.parametrize(
    ("combined", "single"),
    [
        (Combined(3), Multiplicative(3)),
        (Combined(2.5), Multiplicative(2.5)),
        (Combined(1, 0.4), AdditiveAngle(0.4)),
        (Combined(1, 0, 0.3), AdditiveCosine(0.3)),
    ],
    ids=repr,
)
def test_holds_the_others(combined, single):
    cos = torch.linspace(-1, 1, 501, dtype=torch.float64)
    assert torch.equal(combined.target(cos), single.target(cos))


@pytest.mark.parametrize(
    ("numbers", "name"), [((0.5, 0, 0), "m1"), ((1, -1, 0), "m2"), ((1, math.pi, 0), "m2"), ((1, 0, -1), "m3")]
)
def test_refuses(numbers, name):
    with pytest.raises(ValueError, match=f"margin {name} must be a number"):
        Combined(*numbers)
