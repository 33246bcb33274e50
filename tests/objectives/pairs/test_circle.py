import math

import numpy as np
import pytest
import torch
from pytorch_metric_learning import losses as pml

from hypersphere.objectives import Circle

from .contracts import PairContract, batch, cosines, gradients


class TestCircle(PairContract):
    def make(self, **options):
        return Circle(**{"gamma": 20.0, **options})

    def brute_force(self, loss, x, y):
        c, y, m, g = cosines(x), y.tolist(), loss.m, loss.gamma
        losses = []
        for i in range(len(y)):
            positives = [c[i, j] for j in range(len(y)) if j != i and y[j] == y[i]]
            negatives = [c[i, j] for j in range(len(y)) if y[j] != y[i]]
            if positives and negatives:
                n = sum(math.exp(g * max(0, s + m) * (s - m)) for s in negatives)
                p = sum(math.exp(-g * max(0, 1 + m - s) * (s - 1 + m)) for s in positives)
                losses.append(math.log1p(n * p))
        return float(np.mean(losses)) if losses else 0.0

    @pytest.mark.untyped
    def test_refuses_its_own(self):
        self.refuses(m=-0.1, gamma=math.nan, gradient="half")


def test_detached_has_the_same_value_and_another_gradient():
    x, y = batch(30)
    exact, detached = (gradients(Circle(gradient=g), x, y) for g in ("exact", "detached"))
    assert torch.equal(exact[0], detached[0])
    assert not torch.allclose(exact[1], detached[1], rtol=1e-2)


@pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")
def test_detached_agrees_with_pytorch_metric_learning():
    x, y = batch(30)
    for a, b in zip(gradients(Circle(gradient="detached"), x, y), gradients(pml.CircleLoss(), x, y), strict=True):
        assert torch.allclose(a, b, rtol=1e-8, atol=1e-10)
