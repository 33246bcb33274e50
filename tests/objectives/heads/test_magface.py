import math

import numpy as np
import pytest
import torch

from hypersphere.objectives import MagFace
from hypersphere.objectives.margins import Context
from tests.objectives.contracts import HeadContract

RANGE = {"lower_norm": 1.0, "upper_norm": 3.0, "penalty_weight": 2.0}


class TestMagFace(HeadContract):
    scale = 64.0
    pole_error = 64 * math.sin(0.8) * 3.5e-4  # near 1, the angle of a float32 cosine is accurate to √ε

    def head(self, **options):
        torch.manual_seed(1)
        return MagFace(5, 11, **RANGE, **options)

    def target_of(self, theta, length, label):
        u = theta + 0.45 + 0.35 * (np.clip(length, 1, 3) - 1) / 2
        return np.cos(u) if u <= math.pi else -np.cos(u) - 2

    def penalty_of(self, length):
        a = np.clip(length, 1, 3)
        return 2 * (a / 9 + 1 / a)


def test_the_quality_is_the_length():
    x = torch.randn(4, 5)
    assert torch.allclose(MagFace(5, 11).quality(x), x.norm(dim=1))


def test_the_penalty_is_smallest_at_the_upper_norm():
    """Its derivative 1/u² − 1/a² is negative below u, so training makes features longer."""
    head = MagFace(2, 3)
    a = torch.linspace(10, 110, 11, requires_grad=True)
    (slope,) = torch.autograd.grad(head.margin.penalty(Context(norms=a)).sum(), a)
    assert (slope[1:-1] < 0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lower_margin": 0.9}, "margins must satisfy"),
        ({"lower_norm": 0.0}, "norms must satisfy"),
        ({"upper_norm": 5.0}, "norms must satisfy"),
        ({"penalty_weight": math.nan}, "penalty_weight must be"),
    ],
)
def test_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        MagFace(5, 11, **options)
