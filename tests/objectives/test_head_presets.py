import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hypersphere import angular
from hypersphere.objectives import (
    AMSoftmax,
    ArcFace,
    ASoftmax,
    CosFace,
    GASoftmax,
    Hinge,
    LSoftmax,
    MarginSoftmax,
    Softmax,
    SphereFace,
    SSoftmax,
    WSoftmax,
)
from tests.objectives.contracts import HeadContract, gradients, waves


def seeded(kind, **options):
    torch.manual_seed(1)
    return kind(5, 11, **options)


class TestSoftmax(HeadContract):
    scale = "norms"

    def head(self, **options):
        return seeded(Softmax, **{"bias": False, **options})

    @pytest.mark.parametrize("chunk", [None, 4])
    def test_is_a_linear_layer_and_cross_entropy_also_at_zero(self, chunk):
        head = seeded(Softmax, dtype=torch.float64, label_smoothing=0.1)
        nn.init.normal_(head.bias)
        with torch.no_grad():
            head.weight[2] = 0
        x, y = self.batch(8)
        x[0], y[1] = 0, 2
        loss, dx, dw, db = gradients(head, x, y, chunk=chunk)
        inputs, weight, bias = (t.detach().clone().requires_grad_() for t in (x, head.weight, head.bias))
        expected = F.cross_entropy(F.linear(inputs, weight, bias), y, label_smoothing=0.1)
        expected.backward()
        for a, b in zip((loss, dx, dw, db), (expected, inputs.grad, weight.grad, bias.grad), strict=True):
            assert torch.allclose(a, b, atol=1e-12)
        assert torch.allclose(head.logits(x), F.linear(x, weight, bias))


class TestLSoftmax(HeadContract):
    scale = "norms"

    def head(self, **options):
        return seeded(LSoftmax, m=3, **options)

    def easy(self):
        return seeded(LSoftmax, m=1)

    def psi(self, theta):
        return waves(theta, 3)


class TestHinge(HeadContract):
    scale = "norms"
    smooths = False

    def head(self, **options):
        return seeded(Hinge, **{"bias": False, **options})

    def compare(self, target, others):
        return max(0.0, 1 + others.max() - target)


class TestWSoftmax(HeadContract):
    scale = "feature_norm"

    def head(self, **options):
        return seeded(WSoftmax, **options)


class TestLinearWSoftmax(TestWSoftmax):
    def head(self, **options):
        return seeded(WSoftmax, angular=angular.Linear(), **options)

    def g(self, theta):
        return 1 - 2 * theta / math.pi


class TestSSoftmax(HeadContract):
    scale = 20.0

    def head(self, **options):
        return seeded(SSoftmax, scale=20.0, **options)


class TestASoftmax(HeadContract):
    scale = "feature_norm"

    def head(self, **options):
        return seeded(ASoftmax, **options)

    def easy(self):
        return seeded(ASoftmax, m=1)

    def psi(self, theta):
        return waves(theta, 4)


class TestMultiplicativeOnTheSphere(TestASoftmax):
    scale = 10.0

    def head(self, **options):
        return seeded(ASoftmax, m=2.5, scale=10.0, **options)

    def easy(self):
        return seeded(ASoftmax, m=1, scale=10.0)

    def psi(self, theta):
        return waves(theta, 2.5)


class TestGASoftmax(HeadContract):
    scale = "feature_norm"

    def head(self, **options):
        return seeded(GASoftmax, m=3, angular=angular.Sigmoid(0.3), **options)

    def easy(self):
        return seeded(GASoftmax, m=1, angular=angular.Sigmoid(0.3))

    def g(self, theta):
        return np.tanh((math.pi / 2 - theta) / 0.6) / math.tanh(math.pi / 1.2)

    def psi(self, theta):
        k = np.minimum(np.floor(3 * theta / math.pi), 2)
        return self.g(3 * theta - k * math.pi) - 2 * k


class TestAMSoftmax(HeadContract):
    scale = 30.0

    def head(self, **options):
        return seeded(AMSoftmax, **options)

    def easy(self):
        return seeded(AMSoftmax, m=0)

    def psi(self, theta):
        return np.cos(theta) - 0.35


class TestArcFace(HeadContract):
    scale = 64.0

    def head(self, **options):
        return seeded(ArcFace, **options)

    def easy(self):
        return seeded(ArcFace, m=0)

    def psi(self, theta):
        return np.where(theta + 0.5 <= math.pi, np.cos(theta + 0.5), -np.cos(theta + 0.5) - 2)


def test_names_and_defaults():
    assert SphereFace is ASoftmax
    assert CosFace is AMSoftmax
    assert [kind.__name__ for kind in (SphereFace, CosFace)] == ["SphereFace", "CosFace"]
    assert repr(CosFace(4, 3)).startswith("CosFace(")
    head = SphereFace(512, 20, m=4)
    assert isinstance(head, MarginSoftmax)
    assert "m=4" in repr(head)
    assert "scale='feature_norm'" in repr(head)
    assert isinstance(GASoftmax(4, 3).angular, angular.Linear)
    assert SSoftmax(4, 3).scale == 30.0


@pytest.mark.parametrize(
    ("kind", "m"), [(ASoftmax, 0.5), (LSoftmax, 0), (GASoftmax, -1), (AMSoftmax, -0.1), (ArcFace, 28.6)]
)
def test_a_bad_margin_is_refused_by_name(kind, m):
    with pytest.raises(ValueError, match="margin m must be"):
        kind(4, 3, m=m)


@pytest.mark.parametrize("m", [2, 3, 4])
@pytest.mark.parametrize("apart", [0.6, 1.2, 2.0])
def test_two_classes_keep_the_gap_of_2_2_4(m, apart):
    """The edge of a class is where its loss is log 2; the gap between both edges is (m − 1)/(m + 1)·θ₁₂."""
    head = SphereFace(2, 2, m=m, scale=30.0, dtype=torch.float64)
    ends = torch.tensor([0.0, apart], dtype=torch.float64)
    head.weight.data = torch.stack([ends.cos(), ends.sin()], 1)
    edges = [_edge(head, label, apart) for label in (0, 1)]
    assert edges[1] - edges[0] == pytest.approx((m - 1) / (m + 1) * apart, abs=1e-9)


@pytest.mark.parametrize("m", [3.5, 2 + math.sqrt(3), 4])
def test_m_of_property_2_puts_the_classes_further_apart_than_they_are_wide(m):
    """For orthogonal classes, the width θ/(m−1) + θ/(m+1) of a class equals the gap at m = 2 + √3."""
    head = SphereFace(2, 2, m=m, scale=30.0, dtype=torch.float64)
    head.weight.data = torch.eye(2, dtype=torch.float64)
    inner, other = (_edge(head, label, math.pi / 2) for label in (0, 1))
    outer = _crossing(head, 0, 0.0, -math.pi / 2)
    width, gap = inner - outer, other - inner
    assert width == pytest.approx(math.pi / 2 * (1 / (m - 1) + 1 / (m + 1)), abs=1e-9)
    assert (gap - width) * (m - 2 - math.sqrt(3)) >= -1e-9


def _edge(head, label, apart):
    return _crossing(head, label, *((0.0, apart) if label == 0 else (apart, 0.0)))


def _crossing(head, label, inside, outside):
    """Return the angle where the loss of this class passes log 2, by bisection along the circle."""
    for _ in range(60):
        middle = (inside + outside) / 2
        x = torch.tensor([[math.cos(middle), math.sin(middle)]], dtype=torch.float64)
        if head(x, torch.tensor([label])).item() < math.log(2):
            inside = middle
        else:
            outside = middle
    return inside
