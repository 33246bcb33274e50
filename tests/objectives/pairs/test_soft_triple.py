import math

import numpy as np
import pytest
import torch
from pytorch_metric_learning import losses as pml

from hypersphere.objectives import SoftTriple

from .contracts import CLASSES, DIM, ProxyContract, batch, cosines


class TestSoftTriple(ProxyContract):
    def make(self, **options):
        return SoftTriple(DIM, CLASSES, **{"sub_centers": 3, **options})

    def brute_force(self, loss, x, y):
        k = loss.sub_centers
        c = cosines(x, loss.weight).reshape(len(x), CLASSES, k)
        losses = []
        for i, label in enumerate(y.tolist()):
            s = []
            for row in c[i]:
                weights = [math.exp(v / loss.gamma) for v in row]
                s.append(sum(w * v for w, v in zip(weights, row, strict=True)) / sum(weights))
            z = [loss.scale * (v - loss.margin * (j == label)) for j, v in enumerate(s)]
            losses.append(math.log(sum(math.exp(v) for v in z)) - z[label])
        centers = cosines(loss.weight).reshape(CLASSES, k, CLASSES, k)
        apart = [
            math.sqrt(max(0.0, 2 - 2 * centers[j, a, j, b]))
            for j in range(CLASSES)
            for a in range(k)
            for b in range(k)
            if a != b
        ]
        return (float(np.mean(losses)) if losses else 0.0) + (loss.tau * float(np.mean(apart)) if apart else 0.0)

    @pytest.mark.untyped
    def test_refuses_its_own(self):
        self.refuses(scale=0.0, gamma=0.0, margin=-1.0, tau=math.nan, sub_centers=0)


class TestOneCenter(TestSoftTriple):
    def make(self, **options):
        return SoftTriple(DIM, CLASSES, **{"sub_centers": 1, **options})


@pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")
def test_without_its_regulariser_agrees_with_pytorch_metric_learning():
    x, y = batch(12)
    head = SoftTriple(DIM, CLASSES, tau=0.0, dtype=torch.float64)
    peer = pml.SoftTripleLoss(CLASSES, DIM, centers_per_class=10).double()
    peer.fc.data = head.weight.detach().T.clone()
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    mine, theirs = head(a, y), peer(b, y)
    mine.backward()
    theirs.backward()
    assert torch.allclose(mine, theirs, rtol=1e-9)
    assert torch.allclose(a.grad, b.grad, rtol=1e-8, atol=1e-10)
    assert torch.allclose(head.weight.grad, peer.fc.grad.T, rtol=1e-8, atol=1e-10)
    assert torch.allclose(head.logits(x), 20 * peer.get_logits(x), rtol=1e-8)
