import math

import numpy as np
import pytest
import torch

from hypersphere.objectives.comparisons import CrossEntropy

from .contracts import ComparisonContract


class TestCrossEntropy(ComparisonContract):
    comparison = CrossEntropy()

    def formula(self, target, others, num_classes):
        logits = np.append(others, target)
        peak = logits.max()
        return peak + math.log(np.exp(logits - peak).sum()) - target


class TestSmoothed(TestCrossEntropy):
    comparison = CrossEntropy(0.2)

    def formula(self, target, others, num_classes):
        whole = 0.8 * target + 0.2 * (target + others.sum()) / num_classes
        return super().formula(target, others, num_classes) + target - whole

    def test_prints_its_smoothing(self):
        assert repr(self.comparison) == "CrossEntropy(label_smoothing=0.2)"


@pytest.mark.parametrize("value", [1.0, -0.1, math.nan])
def test_refuses(value):
    with pytest.raises(ValueError, match=r"label_smoothing must be in \[0, 1\)"):
        CrossEntropy(value)


def test_a_target_far_above_keeps_the_digits_of_the_others():
    comparison = CrossEntropy()
    summary = comparison.finish(comparison.add(comparison.start(torch.zeros(1)), torch.tensor([[-40.0, -41.0]])))
    assert comparison.loss(torch.tensor([10.0]), summary, 3).item() == pytest.approx(
        math.exp(-50) * (1 + math.exp(-1)), rel=1e-5
    )
