import math

import numpy as np
import pytest
import torch

from hypersphere.evaluation import alignment
from hypersphere.objectives import Alignment

from .contracts import PairContract, batch, cosines


class TestAlignment(PairContract):
    def make(self, **options):
        return Alignment(**options)

    def brute_force(self, loss, x, y):
        c, y = cosines(x), y.tolist()
        pairs = [(i, j) for i in range(len(y)) for j in range(len(y)) if i != j and y[i] == y[j]]
        powers = [max(0.0, 2 - 2 * c[i, j]) ** (loss.alpha / 2) for i, j in pairs]
        return float(np.mean(powers)) if powers else 0.0

    @pytest.mark.untyped
    def test_refuses_its_own(self):
        self.refuses(alpha=0.0)
        self.refuses(alpha=math.nan)


class TestOtherPower(TestAlignment):
    def make(self, **options):
        return Alignment(**{"alpha": 0.5, **options})


@pytest.mark.parametrize("alpha", [1.0, 2.0])
def test_is_the_measure_of_paired_features(alpha):
    x, z = batch(9)[0], batch(9, seed=1)[0]
    y = torch.arange(9)
    assert torch.allclose(Alignment(alpha)(x, y, z, y), alignment(x, z, alpha), rtol=1e-10)
