import math

import pytest
import torch

from hypersphere.objectives import Drawn
from hypersphere.objectives.margins import Context


def test_draws_have_the_mean_and_the_deviation():
    draws = Drawn(0.5, 0.05)(Context(norms=torch.zeros(20_000)))
    assert draws.mean().item() == pytest.approx(0.5, abs=2e-3)
    assert draws.std().item() == pytest.approx(0.05, rel=0.03)
    assert draws.min() >= 0.3
    assert draws.max() <= 0.7


def test_never_below_zero_and_the_mean_in_evaluation():
    assert Drawn(0.1, 1.0)(Context(norms=torch.zeros(1000))).min() >= 0
    assert Drawn(0.3, 0.1).eval()(Context(norms=torch.zeros(5))).item() == pytest.approx(0.3)


@pytest.mark.parametrize("numbers", [(-0.1, 0.1), (0.1, -1), (math.nan, 0), (0.5, math.inf)])
def test_refuses(numbers):
    with pytest.raises(ValueError, match="mean and std must be numbers ≥ 0"):
        Drawn(*numbers)
