import math

import numpy as np
import pytest
import torch
from pytorch_metric_learning import losses as pml

from hypersphere.objectives import NTXent

from .contracts import PairContract, batch, cosines, gradients


class TestNTXent(PairContract):
    def make(self, **options):
        return NTXent(**options)

    def brute_force(self, loss, x, y):
        z, y = cosines(x) / loss.temperature, y.tolist()
        losses = []
        for i in range(len(y)):
            negatives = sum(math.exp(z[i, j]) for j in range(len(y)) if y[j] != y[i])
            positives = [math.exp(z[i, p]) for p in range(len(y)) if p != i and y[p] == y[i]]
            losses += [-math.log(p / (p + negatives)) for p in positives]
        return float(np.mean(losses)) if losses else 0.0

    @pytest.mark.untyped
    def test_refuses_its_own(self):
        self.refuses(temperature=-1.0)
        self.refuses(temperature=math.nan)


def test_two_modalities_are_the_cross_entropy_of_clip():
    x, z = batch(9)[0], batch(9, seed=1)[0]
    y = torch.arange(9)
    cos = torch.nn.functional.cosine_similarity(x[:, None], z[None], dim=2)
    expected = torch.nn.functional.cross_entropy(cos / 0.07, y)
    assert torch.allclose(NTXent()(x, y, z, y), expected, rtol=1e-10)


@pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")
def test_agrees_with_pytorch_metric_learning():
    x, y = batch(30)
    for a, b in zip(gradients(NTXent(), x, y), gradients(pml.NTXentLoss(), x, y), strict=True):
        assert torch.allclose(a, b, rtol=1e-8, atol=1e-10)
