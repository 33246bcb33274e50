import math

import numpy as np
import pytest
import torch

from hypersphere.objectives import CosFace, QMargin
from tests.objectives.comparisons.test_alpha_divergence import fenchel_young
from tests.objectives.contracts import HeadContract


class TestQMargin(HeadContract):
    scale = 20.0
    smooths = False

    def head(self, **options):
        torch.manual_seed(1)
        return QMargin(5, 11, scale=20.0, m=0.3, **options)

    def easy(self):
        torch.manual_seed(1)
        return QMargin(5, 11, scale=20.0, m=0)

    def compare(self, target, others):
        return fenchel_young(target, others, 1.5, (1 + 0.5 * 20 * 0.3) ** -2)


def test_approaches_cosface():
    torch.manual_seed(0)
    x, y = torch.randn(30, 16), torch.randint(0, 9, (30,))
    q, cosface = QMargin(16, 9, m=0.2, scale=10.0, alpha=1.0001), CosFace(16, 9, m=0.2, scale=10.0)
    cosface.load_state_dict(q.state_dict(), strict=False)
    assert torch.allclose(q(x, y), cosface(x, y), rtol=2e-3)


def test_classes_far_below_the_largest_get_no_gradient():
    torch.manual_seed(0)
    head = QMargin(32, 2000, scale=64.0, chunk=500)
    head(torch.randn(2, 32), torch.tensor([0, 1])).backward()
    touched = (head.weight.grad != 0).any(1).float().mean()
    assert 0 < touched < 0.05
    assert np.isfinite(head.weight.grad.numpy()).all()


@pytest.mark.parametrize("options", [{"scale": 0.0}, {"m": -0.1}, {"m": math.nan}, {"alpha": 1.0}])
def test_refuses(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        QMargin(5, 11, **options)
