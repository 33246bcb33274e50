import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from hypersphere.objectives import SphereFace2
from hypersphere.objectives.heads.sphereface2 import compute_initial_bias
from tests.objectives.contracts import HeadContract


class TestSphereFace2(HeadContract):
    scale = 40.0
    has_bias = smooths = False

    def head(self, **options):
        torch.manual_seed(1)
        return SphereFace2(5, 11, **options)

    def easy(self):
        torch.manual_seed(1)
        return SphereFace2(5, 11, m=0)

    def g(self, theta):
        return 2 * ((np.cos(theta) + 1) / 2) ** 3 - 1

    def psi(self, theta):
        return self.g(theta) - 0.4

    def other_of(self, theta, thetas, label, length):
        return self.g(theta) + 0.4

    def compare(self, target, others):
        return (0.7 * np.logaddexp(0, -target) + 0.3 * np.logaddexp(0, others).sum()) / 40


@pytest.mark.parametrize("classes", [2, 3, 11, 1000, 10**6])
@pytest.mark.parametrize(("balance", "scale", "m"), [(0.7, 40.0, 0.4), (0.7, 32.0, 0.2), (0.5, 30.0, 0.0)])
def test_the_bias_starts_at_the_minimum(classes, balance, scale, m):
    g = 2 * 0.5**3 - 1

    def loss(b):
        own = balance * np.logaddexp(0, -scale * (g - m) - b)
        return own + (1 - balance) * (classes - 1) * np.logaddexp(0, scale * (g + m) + b)

    found = compute_initial_bias(classes, balance, scale, m, 3.0)
    best = minimize_scalar(loss, bounds=(-100, 200), method="bounded", options={"xatol": 1e-10})
    assert loss(found) <= best.fun * (1 + 1e-12)
    slope = (loss(found + 1e-4) - loss(found - 1e-4)) / 2e-4
    assert abs(slope) <= 1e-4 * balance


def test_the_head_starts_there():
    head = SphereFace2(5, 11)
    assert head.bias.item() == pytest.approx(compute_initial_bias(11, 0.7, 40.0, 0.4, 3.0), rel=1e-6)
    head.bias.data.zero_()
    head.reset_parameters()
    assert head.bias.item() != 0


@pytest.mark.parametrize(
    "options", [{"balance": 0}, {"balance": 1.0}, {"balance": math.nan}, {"scale": -1.0}, {"t": 0}]
)
def test_refuses(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be a"):
        SphereFace2(5, 11, **options)
