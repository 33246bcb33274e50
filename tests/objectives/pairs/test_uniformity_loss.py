import math

import numpy as np
import pytest
import torch

from hypersphere.evaluation import uniformity
from hypersphere.objectives import Uniformity

from .contracts import PairContract, batch, cosines


class TestUniformity(PairContract):
    needs_positives = False

    def make(self, **options):
        return Uniformity(**options)

    def brute_force(self, loss, x, y):
        c = cosines(x)
        values = [math.exp(-loss.t * (2 - 2 * c[i, j])) for i in range(len(c)) for j in range(len(c)) if i != j]
        return math.log(np.mean(values)) if values else 0.0

    def test_needs_no_labels(self):
        x, y = batch()
        assert torch.equal(self.double()(x), self.double()(x, y))

    @pytest.mark.untyped
    def test_refuses_its_own(self):
        self.refuses(t=0.0)
        self.refuses(t=math.nan)


def test_is_the_measure():
    x, _ = batch(20)
    assert torch.allclose(Uniformity()(x), uniformity(x), rtol=1e-9)


def test_a_kernel_too_sharp_for_float32_is_finite():
    assert torch.isfinite(Uniformity(1000.0)(torch.eye(3)))
