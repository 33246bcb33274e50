import math

import numpy as np
import pytest
import torch

from hypersphere.objectives import ElasticFace
from tests.objectives.contracts import HeadContract


class TestElasticFace(HeadContract):
    scale = 64.0

    def head(self, **options):
        torch.manual_seed(1)
        return ElasticFace(5, 11, **options).eval()

    def psi(self, theta):
        return np.where(theta + 0.5 <= math.pi, np.cos(theta + 0.5), -np.cos(theta + 0.5) - 2)


class TestCosine(TestElasticFace):
    def head(self, **options):
        torch.manual_seed(1)
        return ElasticFace(5, 11, kind="cosine", **options).eval()

    def psi(self, theta):
        return np.cos(theta) - 0.35


def test_every_sample_gets_a_margin_of_its_own():
    head = ElasticFace(5, 11, kind="cosine", std=0.1, reduction="none")
    x, y = torch.randn(1, 5).expand(400, 5), torch.zeros(400, dtype=torch.long)
    torch.manual_seed(3)
    first = head(x, y)
    assert first.std() > 0.5
    assert not torch.equal(head(x, y), first)
    torch.manual_seed(3)
    assert torch.equal(head(x, y), first)


@pytest.mark.untyped
def test_refuses():
    with pytest.raises(ValueError, match="kind must be"):
        ElasticFace(5, 11, kind="arc")
    with pytest.raises(ValueError, match="mean and std must be"):
        ElasticFace(5, 11, std=-1.0)
