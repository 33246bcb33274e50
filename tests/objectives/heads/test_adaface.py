import math

import numpy as np
import pytest
import torch

from hypersphere.objectives import AdaFace
from hypersphere.objectives.margins import Context
from tests.objectives.contracts import HeadContract


class TestAdaFace(HeadContract):
    scale = 64.0

    def head(self, **options):
        torch.manual_seed(1)
        head = AdaFace(5, 11, **options).eval()
        head.margin.mean.fill_(2.0)
        head.margin.deviation.fill_(0.5)
        return head

    def target_of(self, theta, length, label):
        z = np.clip(0.333 * (np.clip(length, 1e-3, 100) - 2.0) / 0.501, -1, 1)
        u = max(theta - 0.4 * z, 0)
        return (np.cos(u) if u <= math.pi else -np.cos(u) - 2) - (0.4 + 0.4 * z)

    @pytest.mark.parametrize("chunk", [None, 4])
    def test_gradcheck(self, chunk):
        """z has no gradient, so the expected gradient is that of a head with a fixed z per sample."""
        head = self.head(chunk=chunk, dtype=torch.float64).double()
        x, y = self.batch(2)
        norms = x.norm(dim=1)
        hook = head.margin.target

        def loss(features, weight):
            return torch.func.functional_call(head, {"weight": weight}, (features, y))

        head.margin.target = lambda cos, context: hook(cos, context._replace(norms=norms))
        inputs = (x.requires_grad_(), head.weight.detach().clone().requires_grad_())
        assert torch.autograd.gradcheck(loss, inputs)
        held = torch.autograd.grad(loss(*inputs), inputs)
        head.margin.target = hook
        for a, b in zip(torch.autograd.grad(loss(*inputs), inputs), held, strict=True):
            assert torch.allclose(a, b, rtol=1e-12)


def test_the_statistics_follow_the_batch_and_are_saved():
    head = AdaFace(5, 11)
    x, y = torch.randn(8, 5) * 10, torch.randint(0, 11, (8,))
    y[3] = -100
    counted = torch.cat([x[:3], x[4:]]).norm(dim=1).clamp(1e-3, 100)
    head(x, y)
    assert head.margin.mean.item() == pytest.approx(0.99 * 20 + 0.01 * counted.mean().item(), rel=1e-5)
    assert head.margin.deviation.item() == pytest.approx(0.99 * 100 + 0.01 * counted.std().item(), rel=1e-5)
    again = AdaFace(5, 11)
    again.load_state_dict(head.state_dict())
    assert again.margin.mean == head.margin.mean
    before = head.margin.mean.clone()
    head.eval()(x, y)
    assert head.margin.mean == before


@pytest.mark.parametrize("n", [1, 3])
def test_too_few_samples_leave_the_statistics(n):
    head = AdaFace(5, 11)
    head(torch.randn(n, 5), torch.full((n,), -100))
    assert head.margin.mean == 20
    assert head.margin.deviation == 100
    head(torch.randn(1, 5), torch.tensor([1]))
    assert head.margin.deviation == 100


def test_a_long_feature_has_an_additive_cosine_and_a_short_one_an_additive_angle():
    head = AdaFace(2, 3).eval()
    head.margin.mean.fill_(5.0)
    head.margin.deviation.fill_(0.1)
    context = torch.tensor([1.0, 9.0])
    psi = head.margin.target(torch.tensor([0.3, 0.3]), Context(norms=context))
    theta = math.acos(0.3)
    assert psi.tolist() == pytest.approx([math.cos(theta + 0.4), math.cos(theta - 0.4) - 0.8], rel=1e-5)
    assert head.quality(torch.tensor([[3.0, 4.0]])).item() == 5


@pytest.mark.parametrize("options", [{"m": -1}, {"m": math.nan}, {"h": 0}, {"momentum": 0}, {"momentum": 2}])
def test_refuses(options):
    with pytest.raises(ValueError, match="must be"):
        AdaFace(5, 11, **options)
