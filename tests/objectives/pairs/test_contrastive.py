import math

import numpy as np
import pytest
import torch
from pytorch_metric_learning import losses as pml

from hypersphere.objectives import Contrastive

from .contracts import PairContract, batch, cosines, gradients


class TestContrastive(PairContract):
    needs_positives = False

    def make(self, **options):
        return Contrastive(**{"positive_margin": 0.1, **options})

    def brute_force(self, loss, x, y):
        c, y = cosines(x), y.tolist()
        terms = {True: [], False: []}
        for i in range(len(y)):
            for j in range(len(y)):
                if i != j:
                    d = math.sqrt(max(0.0, 2 - 2 * c[i, j]))
                    same = y[i] == y[j]
                    excess = d - loss.positive_margin if same else loss.negative_margin - d
                    if excess > 0 or loss.average == "all":
                        terms[same].append(max(0.0, excess) ** loss.power)
        return sum(float(np.mean(values)) for values in terms.values() if values)

    def test_without_positives_only_negatives_count(self):
        x, y = batch(5)[0], torch.arange(5)
        loss = self.double()
        assert np.isclose(loss(x, y).item(), self.brute_force(loss, x, y))

    @pytest.mark.untyped
    def test_refuses_its_own(self):
        nan = math.nan
        self.refuses(positive_margin=-0.1, negative_margin=nan, power=3, average="some")


class TestLinearOverAllPairs(TestContrastive):
    def make(self, **options):
        return Contrastive(**{"power": 1, "average": "all", **options})


@pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")
@pytest.mark.parametrize("margins", [(0.0, 1.0), (0.2, 0.7)])
def test_agrees_with_pytorch_metric_learning(margins):
    x, y = batch(30)
    mine = gradients(Contrastive(*margins, power=1), x, y)
    theirs = gradients(pml.ContrastiveLoss(pos_margin=margins[0], neg_margin=margins[1]), x, y)
    for a, b in zip(mine, theirs, strict=True):
        assert torch.allclose(a, b, rtol=1e-7, atol=1e-9)
