import math

import numpy as np
import pytest
import torch
from pytorch_metric_learning import losses as pml

from hypersphere.objectives import ProxyAnchor

from .contracts import CLASSES, DIM, ProxyContract, batch, cosines


class TestProxyAnchor(ProxyContract):
    def make(self, **options):
        return ProxyAnchor(DIM, CLASSES, **options)

    def brute_force(self, loss, x, y):
        c, y, a, m = cosines(x, loss.weight), y.tolist(), loss.alpha, loss.margin
        pull = {k: sum(math.exp(-a * (c[i, k] - m)) for i in range(len(y)) if y[i] == k) for k in set(y)}
        push = [sum(math.exp(a * (c[i, k] + m)) for i in range(len(y)) if y[i] != k) for k in range(CLASSES)]
        return float(np.mean([math.log1p(v) for v in pull.values()]) + np.mean([math.log1p(v) for v in push]))

    @pytest.mark.untyped
    def test_refuses_its_own(self):
        self.refuses(margin=-1.0, alpha=math.nan)


@pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")
def test_agrees_with_pytorch_metric_learning():
    x, y = batch(12)
    head = ProxyAnchor(DIM, CLASSES, dtype=torch.float64)
    peer = pml.ProxyAnchorLoss(CLASSES, DIM).double()
    peer.proxies.data = head.weight.detach().clone()
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    mine, theirs = head(a, y), peer(b, y)
    mine.backward()
    theirs.backward()
    assert torch.allclose(mine, theirs, rtol=1e-9)
    assert torch.allclose(a.grad, b.grad, rtol=1e-8, atol=1e-10)
    assert torch.allclose(head.weight.grad, peer.proxies.grad, rtol=1e-8, atol=1e-10)
