import math

import numpy as np
import pytest
import torch

from hypersphere.objectives import UniFace
from tests.objectives.contracts import HeadContract


class TestUniFace(HeadContract):
    scale = 64.0
    has_bias = smooths = False

    def head(self, **options):
        torch.manual_seed(1)
        return UniFace(5, 11, **options)

    def easy(self):
        torch.manual_seed(1)
        return UniFace(5, 11, m=0)

    def psi(self, theta):
        return np.cos(theta) - 0.4

    def compare(self, target, others):
        return np.logaddexp(0, -target) + np.logaddexp(0, others).sum()


def test_the_threshold_starts_by_the_number_of_classes_looked_at():
    assert UniFace(5, 1000).bias.item() == pytest.approx(-math.log(10_000))
    assert UniFace(5, 1000, rate=0.1).bias.item() == pytest.approx(-math.log(1000))


@pytest.mark.parametrize("rate", [0, 1.5, math.nan])
def test_refuses(rate):
    with pytest.raises(ValueError, match="rate must be a number"):
        UniFace(5, 11, rate=rate)
