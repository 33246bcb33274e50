import math

import pytest
import torch
from torch.nn import functional as F

from hypersphere import angular
from hypersphere.objectives.functional import class_logits, margin_softmax
from hypersphere.objectives.margins import AdditiveAngle, AdditiveCosine, Multiplicative


def batch(n=8, classes=6, d=4, dtype=torch.float64):
    return torch.randn(n, d, dtype=dtype), torch.randn(classes, d, dtype=dtype), torch.randint(0, classes, (n,))


def dense_logits(x, w, y, psi, scale):
    cos = F.cosine_similarity(x[:, None], w[None], dim=-1)
    target = psi(cos.gather(1, y[:, None]))
    return scale * cos.scatter(1, y[:, None], target)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("chunk", [None, 4, "auto"])
def test_reductions_and_smoothing_are_those_of_cross_entropy(reduction, smoothing, chunk):
    x, w, y = batch()
    y[2] = -100
    options = {"reduction": reduction, "label_smoothing": smoothing}
    mine = margin_softmax(x, w, y, margin=AdditiveCosine(0.2), scale=9.0, chunk=chunk, **options)
    logits = dense_logits(x, w, y.clamp_min(0), lambda c: c - 0.2, 9.0)
    assert torch.allclose(mine, F.cross_entropy(logits, y, **options))


def test_annealing_mixes_the_logits():
    x, w, y = batch()
    mixed = margin_softmax(x, w, y, margin=Multiplicative(2), scale="feature_norm", annealing=3.0)
    logits = dense_logits(x, w, y, lambda c: (3 * c + Multiplicative(2).target(c.squeeze(1))[:, None]) / 4, 1.0)
    assert torch.allclose(mixed, F.cross_entropy(x.norm(dim=1, keepdim=True) * logits, y))
    large = margin_softmax(x, w, y, margin=Multiplicative(2), scale="feature_norm", annealing=1e12)
    assert torch.allclose(large, margin_softmax(x, w, y, scale="feature_norm"))


@pytest.mark.parametrize("chunk", [None, 4])
@pytest.mark.parametrize("margin", [Multiplicative(3), AdditiveAngle(0.4)], ids=repr)
def test_detached_holds_the_margins_effect_constant(margin, chunk):
    x, w, y = batch()
    cos = F.cosine_similarity(x, w[y], dim=-1)
    effect = margin.target(cos) - cos
    a, b = x.clone().requires_grad_(), w.clone().requires_grad_()
    detached = margin_softmax(a, b, y, margin=margin, scale=8.0, gradient="detached", chunk=chunk)
    detached.backward()
    c, d = x.clone().requires_grad_(), w.clone().requires_grad_()
    logits = dense_logits(c, d, y, lambda cos: cos + effect[:, None], 8.0)
    F.cross_entropy(logits, y).backward()
    assert torch.allclose(a.grad, c.grad)
    assert torch.allclose(b.grad, d.grad)
    e = x.clone().requires_grad_()
    exact = margin_softmax(e, w, y, margin=margin, scale=8.0, chunk=chunk)
    exact.backward()
    assert torch.equal(exact, detached)
    assert (e.grad - a.grad).norm() > 0.05 * e.grad.norm()


def test_a_scale_per_sample_and_a_learned_one():
    x, w, y = batch()
    scale = torch.rand(8, dtype=torch.float64) * 10
    each = margin_softmax(x, w, y, scale=scale, reduction="none")
    assert torch.allclose(each[3], margin_softmax(x[3:4], w, y[3:4], scale=scale[3].item()))
    for chunk in (None, 4):
        assert torch.autograd.gradcheck(
            lambda s, chunk=chunk: margin_softmax(x, w, y, scale=s, chunk=chunk), scale.requires_grad_()
        )


def test_a_callable_g():
    x, w, y = batch()
    mine = margin_softmax(x, w, y, angular=lambda cos: cos**3, scale=5.0)
    cos = F.cosine_similarity(x[:, None], w[None], dim=-1)
    assert torch.allclose(mine, F.cross_entropy(5 * cos**3, y))


def test_logits():
    x, w, _ = batch()
    cos = F.cosine_similarity(x[:, None], w[None], dim=-1)
    bias = torch.randn(6, dtype=torch.float64)
    lengths = x.norm(dim=1, keepdim=True)
    assert torch.allclose(class_logits(x, w, scale=3.0, bias=bias), 3 * cos + bias)
    assert torch.allclose(class_logits(x, w, scale="feature_norm"), lengths * cos)
    assert torch.allclose(class_logits(x, w, scale="norms"), x @ w.T)
    linear = class_logits(x, w, scale="norms", angular=angular.Linear())
    assert torch.allclose(linear, lengths * w.norm(dim=1) * (1 - 2 * cos.acos() / math.pi))
    assert torch.allclose(class_logits(x, w, sub_centers=2), 30 * cos.unflatten(1, (3, 2)).amax(-1))
    assert class_logits(x.half(), w.half()).dtype == torch.float32


@pytest.mark.untyped
def test_refuses():
    x, w, y = batch()
    with pytest.raises(ValueError, match="must agree in d"):
        margin_softmax(x[:, :3], w, y)
    with pytest.raises(ValueError, match="angular must be"):
        margin_softmax(x, w, y, angular="linear")
    with pytest.raises(ValueError, match="chunk must be"):
        margin_softmax(x, w, y, chunk=0)
    with pytest.raises(ValueError, match="scale must be"):
        class_logits(x, w, scale="s")
