import math

import numpy as np
import pytest
import torch

from hypersphere.objectives import KoLeo

from .contracts import PairContract, batch, cosines, gradients


class TestKoLeo(PairContract):
    needs_positives = False

    def make(self, **options):
        return KoLeo(**options)

    def brute_force(self, loss, x, y):
        c = cosines(x)
        if len(c) < 2:
            return 0.0
        nearest = [max(c[i, j] for j in range(len(c)) if j != i) for i in range(len(c))]
        return -float(np.mean([math.log(math.sqrt(max(0.0, 2 - 2 * s)) + loss.eps) for s in nearest]))

    def test_needs_no_labels(self):
        x, y = batch()
        assert torch.equal(self.double()(x), self.double()(x, y))

    @pytest.mark.untyped
    def test_refuses_its_own(self):
        self.refuses(eps=0.0)
        self.refuses(eps=math.nan)


def test_close_neighbors_are_right_in_float32():
    """At a distance of 1e-4 the cosine rounds to 1, but the difference vector is still accurate."""
    x = torch.nn.functional.normalize(torch.randn(6, 5, dtype=torch.float64))
    x = torch.cat([x, x + 1e-4 * torch.randn(6, 5, dtype=torch.float64)]).float()
    value, dx = gradients(KoLeo(), x, torch.zeros(12, dtype=torch.long))
    exact, dexact = gradients(KoLeo(), x.double(), torch.zeros(12, dtype=torch.long))
    assert torch.allclose(value.double(), exact, rtol=1e-3)
    assert torch.allclose(dx.double(), dexact, rtol=1e-2, atol=1e-2 * dexact.abs().max())
