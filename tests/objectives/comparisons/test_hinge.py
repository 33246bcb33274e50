import math

import pytest
import torch
from sklearn.metrics import hinge_loss

from hypersphere.objectives.comparisons import MultiClassHinge

from .contracts import ComparisonContract


class TestMultiClassHinge(ComparisonContract):
    comparison = MultiClassHinge(1.5)

    def formula(self, target, others, num_classes):
        return max(0.0, 1.5 + others.max() - target)


class TestSquaredHinge(ComparisonContract):
    comparison = MultiClassHinge(1.5, power=2)

    def formula(self, target, others, num_classes):
        return max(0.0, 1.5 + others.max() - target) ** 2


def test_agrees_with_scikit_learn():
    z, y = torch.randn(40, 6, dtype=torch.float64), torch.arange(40) % 6
    others = z.scatter(1, y[:, None], -torch.inf)
    comparison = MultiClassHinge()
    summary = comparison.finish(comparison.add(comparison.start(z[:, 0]), others))
    mine = comparison.loss(z.gather(1, y[:, None]).squeeze(1), summary, 6).mean()
    assert mine.item() == pytest.approx(hinge_loss(y.numpy(), z.numpy()), rel=1e-12)


def test_ties_share_the_gradient():
    comparison = MultiClassHinge()
    z = torch.tensor([[2.0, 2.0, 1.0]])
    slope = comparison.slope(z, comparison.finish(comparison.add(comparison.start(z[:, 0]), z)), (torch.ones(1),) * 2)
    assert slope.tolist() == [[0.5, 0.5, 0.0]]


@pytest.mark.parametrize("gap", [0, -1, math.nan, math.inf])
def test_refuses(gap):
    with pytest.raises(ValueError, match="gap must be a positive number"):
        MultiClassHinge(gap)


@pytest.mark.untyped
def test_refuses_other_powers():
    with pytest.raises(ValueError, match="power must be 1 or 2"):
        MultiClassHinge(power=3)
