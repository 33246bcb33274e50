import math

import pytest
import torch

from hypersphere.objectives.pairs.pair_loss import PairLoss, SummedPairLoss, check_number


class MeanCosine(SummedPairLoss):
    """The minimal definition of a new loss."""

    def terms(self, cos, positive, negative):
        return torch.stack([(cos * negative).sum(), negative.sum().to(cos.dtype)])


def test_a_loss_of_ones_own_is_a_few_lines():
    x, y = torch.eye(3), torch.arange(3)
    assert MeanCosine()(x, y) == 0
    assert MeanCosine()(x, y, -x, y + 1) == pytest.approx(-3 / 7)


def test_abstract_classes_cannot_be_made():
    for kind in (PairLoss, SummedPairLoss):
        with pytest.raises(TypeError):
            kind()


def test_numbers():
    assert check_number("a", 0.5, low=0) == 0.5
    assert check_number("a", 0.0, low=0, inclusive=True) == 0
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="a must be a finite number > 0"):
            check_number("a", bad, low=0)
