import math

import numpy as np
import pytest
import torch

from hypersphere.objectives import AMSoftmax, MVSoftmax
from tests.objectives.contracts import HeadContract


class TestMVSoftmax(HeadContract):
    scale = 32.0

    def head(self, **options):
        torch.manual_seed(1)
        return MVSoftmax(5, 11, **options)

    def psi(self, theta):
        return np.cos(theta) - 0.35

    def other_of(self, theta, thetas, label, length):
        cos = np.cos(theta)
        return 1.12 * cos + 0.12 if cos > self.psi(thetas[label]) else cos


class TestAngle(TestMVSoftmax):
    def head(self, **options):
        torch.manual_seed(1)
        return MVSoftmax(5, 11, kind="angle", m=0.5, **options)

    def psi(self, theta):
        return np.cos(theta + 0.5) if theta + 0.5 <= math.pi else -np.cos(theta + 0.5) - 2


def test_t_of_one_is_the_margin_alone():
    head, plain = MVSoftmax(5, 11, t=1.0), AMSoftmax(5, 11, scale=32.0)
    plain.weight.data = head.weight.data
    x, y = torch.randn(8, 5), torch.randint(0, 11, (8,))
    assert torch.allclose(head(x, y), plain(x, y))


@pytest.mark.untyped
@pytest.mark.parametrize("options", [{"t": 0.9}, {"t": math.nan}, {"kind": "both"}])
def test_refuses(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be"):
        MVSoftmax(5, 11, **options)
