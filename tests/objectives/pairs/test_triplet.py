import math

import numpy as np
import pytest
import torch
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning import miners
from pytorch_metric_learning.distances import LpDistance

from hypersphere.objectives import Triplet

from .contracts import PairContract, batch, cosines, gradients


class TestAll(PairContract):
    def make(self, **options):
        return Triplet(**options)

    def triplets(self, loss, d, y):
        n = len(y)
        for a in range(n):
            positives = [p for p in range(n) if p != a and y[p] == y[a]]
            negatives = [q for q in range(n) if y[q] != y[a]]
            if loss.mining == "hard" and positives and negatives:
                yield max(d[a, p] for p in positives), min(d[a, q] for q in negatives)
            elif loss.mining != "hard":
                for p in positives:
                    for q in negatives:
                        if loss.mining == "all" or d[a, p] < d[a, q] < d[a, p] + loss.margin:
                            yield d[a, p], d[a, q]

    def brute_force(self, loss, x, y):
        square = np.maximum(2 - 2 * cosines(x), 0)
        d = square if loss.squared else np.sqrt(square)
        values = [max(0.0, p - q + loss.margin) for p, q in self.triplets(loss, d, y.tolist())]
        if loss.average == "nonzero":
            values = [v for v in values if v > 0]
        return float(np.mean(values)) if values else 0.0

    @pytest.mark.untyped
    def test_refuses_its_own(self):
        self.refuses(margin=math.nan, mining="soft", average="some")


class TestHard(TestAll):
    def make(self, **options):
        return Triplet(**{"mining": "hard", "average": "all", **options})


class TestSemihard(TestAll):
    def make(self, **options):
        return Triplet(**{"mining": "semihard", "margin": 0.5, **options})


class TestSquaredOverAll(TestAll):
    def make(self, **options):
        return Triplet(**{"squared": True, "average": "all", **options})


@pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")
@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("mining", ["all", "hard", "semihard"])
def test_agrees_with_pytorch_metric_learning(mining, squared):
    x, y = batch(30)
    distance = LpDistance(power=2 if squared else 1)
    peer = pml.TripletMarginLoss(margin=0.3, distance=distance)
    miner = {
        "all": lambda x, y: None,
        "hard": miners.BatchHardMiner(distance=distance),
        "semihard": miners.TripletMarginMiner(margin=0.3, type_of_triplets="semihard", distance=distance),
    }[mining]
    mine = gradients(Triplet(0.3, mining, squared), x, y)
    other = x.clone().requires_grad_()
    value = peer(other, y, miner(other, y))
    value.backward()
    assert torch.allclose(mine[0], value.detach(), rtol=1e-8)
    assert torch.allclose(mine[1], other.grad, rtol=1e-6, atol=1e-9)


def test_many_triplets_of_large_classes_are_never_listed():
    """Two classes of 600 samples have 431 million triplets, which would be 1.7 GB of differences."""
    torch.manual_seed(0)
    x, y = torch.randn(1200, 8), torch.arange(2).repeat(600)
    value, dx = gradients(Triplet(chunk=250), x, y)
    exact = gradients(Triplet(chunk=250), x.double(), y)
    assert torch.allclose(value.double(), exact[0], rtol=1e-5)
    assert torch.allclose(dx.double(), exact[1], atol=1e-6)
