import math

import numpy as np
import pytest
import torch

from hypersphere.energy import hyperspherical_energy
from hypersphere.objectives import HUG

from .contracts import CLASSES, DIM, ProxyContract, batch, cosines, gradients


class TestHUG(ProxyContract):
    def make(self, **options):
        return HUG(DIM, CLASSES, **{"alpha": 0.7, "beta": 1.3, **options})

    def brute_force(self, loss, x, y):
        w, c = cosines(loss.weight), cosines(x, loss.weight) if len(x) else None
        pairs = [(i, j) for i in range(CLASSES) for j in range(CLASSES) if i != j]
        between = np.mean([math.sqrt(2 - 2 * w[i, j]) ** -loss.s for i, j in pairs])
        labels = y.tolist()
        within = [
            np.mean([math.sqrt(max(0.0, 2 - 2 * c[i, k])) for i in range(len(labels)) if labels[i] == k])
            for k in set(labels)
        ]
        return float(loss.alpha * between + loss.beta * (np.mean(within) if within else 0.0))

    @pytest.mark.untyped
    def test_refuses_its_own(self):
        self.refuses(alpha=-1.0, beta=math.nan, s=0.0, gradient="half")


class TestOtherPower(TestHUG):
    def make(self, **options):
        return HUG(DIM, CLASSES, **{"s": 1.0, **options})


def test_between_classes_it_is_the_energy():
    head = HUG(DIM, CLASSES, beta=0.0, dtype=torch.float64)
    x, y = batch()
    assert torch.allclose(head(x, y), hyperspherical_energy(head.weight), rtol=1e-9)


def test_detached_proxies_move_by_the_energy_alone():
    x, y = batch()
    torch.manual_seed(0)
    head = HUG(DIM, CLASSES, gradient="detached", dtype=torch.float64)
    value, _, dw = gradients(head, x, y)
    head.beta = 0.0
    assert torch.allclose(gradients(head, x, y)[2], dw, rtol=1e-12)
    head.beta, head.gradient = 1.0, "exact"
    exact = gradients(head, x, y)
    assert torch.equal(exact[0], value)
    assert not torch.allclose(exact[2], dw, rtol=1e-2)
