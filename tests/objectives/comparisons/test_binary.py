import math

import numpy as np
import pytest
import torch

from hypersphere.objectives import MarginSoftmax
from hypersphere.objectives.comparisons import Binary

from .contracts import ComparisonContract


class TestBinary(ComparisonContract):
    comparison = Binary(0.7, 0.3)

    def formula(self, target, others, num_classes):
        return 0.7 * np.log1p(np.exp(-target)) + 0.3 * np.log1p(np.exp(others)).sum()


def test_softplus_is_not_linear_past_twenty():
    """torch's softplus is linear past 20, so a confident prediction would lose its loss of e^{−30}."""
    comparison = Binary()
    summary = comparison.finish(comparison.add(comparison.start(torch.zeros(1).double()), torch.tensor([[-700.0]])))
    assert comparison.loss(torch.tensor([30.0]).double(), summary, 2).item() == pytest.approx(math.exp(-30), rel=1e-12)


@pytest.mark.parametrize("weights", [(0, 1), (1, -1), (math.nan, 1), (1, math.inf)])
def test_refuses(weights):
    with pytest.raises(ValueError, match="positive and negative must be positive numbers"):
        Binary(*weights)


def test_smoothing_belongs_to_the_cross_entropy():
    with pytest.raises(ValueError, match=r"label_smoothing=0\.1 applies to the cross-entropy.*Binary"):
        MarginSoftmax(4, 3, comparison=Binary(), label_smoothing=0.1)
