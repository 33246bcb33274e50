import math

import numpy as np
import pytest
import torch
from pytorch_metric_learning import losses as pml

from hypersphere.objectives import SupCon

from .contracts import PairContract, batch, cosines, gradients


class TestSupCon(PairContract):
    def make(self, **options):
        return SupCon(**options)

    def brute_force(self, loss, x, y):
        z, y = cosines(x) / loss.temperature, y.tolist()
        losses = []
        for i in range(len(y)):
            others = [j for j in range(len(y)) if j != i]
            positives = [j for j in others if y[j] == y[i]]
            if positives:
                total = math.log(sum(math.exp(z[i, j]) for j in others))
                losses.append(np.mean([total - z[i, p] for p in positives]))
        return float(np.mean(losses)) if losses else 0.0

    @pytest.mark.untyped
    def test_refuses_its_own(self):
        self.refuses(temperature=0.0)
        self.refuses(temperature=math.nan)
        self.refuses(temperature=math.inf)


@pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")
def test_agrees_with_pytorch_metric_learning():
    x, y = batch(30)
    for a, b in zip(gradients(SupCon(), x, y), gradients(pml.SupConLoss(), x, y), strict=True):
        assert torch.allclose(a, b, rtol=1e-8, atol=1e-10)
