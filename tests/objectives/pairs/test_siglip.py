import math

import pytest
import torch

from hypersphere.objectives import SigLIP

from .contracts import PairContract, batch, cosines


class TestSigLIP(PairContract):
    needs_positives = False

    def make(self, **options):
        return SigLIP(**options)

    def brute_force(self, loss, x, y):
        c, y = cosines(x), y.tolist()
        t, b = loss.log_scale.double().exp().item(), loss.bias.item()
        total = 0.0
        for i in range(len(y)):
            for j in range(len(y)):
                if i != j:
                    sign = 1 if y[i] == y[j] else -1
                    total += math.log1p(math.exp(-sign * (t * c[i, j] + b)))
        return total / max(len(y), 1)

    @pytest.mark.untyped
    def test_refuses_its_own(self):
        self.refuses(scale=0.0, bias=math.nan)
        self.refuses(scale=math.nan)


def test_images_and_texts_as_in_the_paper():
    """−(1/n)·ΣΣ log σ(z·(t·x·y + b)) with z = 1 on the diagonal and −1 elsewhere."""
    x, z = batch(7)[0], batch(7, seed=1)[0]
    y, loss = torch.arange(7), SigLIP().double()
    logits = 10 * torch.nn.functional.cosine_similarity(x[:, None], z[None], dim=2) - 10
    expected = -torch.nn.functional.logsigmoid((2 * torch.eye(7, dtype=x.dtype) - 1) * logits).sum() / 7
    assert torch.allclose(loss(x, y, z, y), expected, rtol=1e-7)  # the parameters start from float32
    loss(x, y, z, y).backward()
    assert loss.log_scale.grad != 0
    assert loss.bias.grad != 0
