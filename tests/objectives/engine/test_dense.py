"""Soft targets and sample weights, against formulas written in numpy in float64."""

import copy

import numpy as np
import pytest
import torch
import torch.distributed as dist

from hypersphere import objectives
from hypersphere.objectives import Targets
from hypersphere.objectives.comparisons import Binary, Comparison, CrossEntropy, MultiClassHinge
from hypersphere.objectives.functional import margin_softmax

N, C, D = 6, 5, 4


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(N, D, generator=generator, dtype=torch.float64)
    soft = torch.rand(N, C, generator=generator, dtype=torch.float64)
    soft[0] = torch.eye(C, dtype=torch.float64)[2]
    return x, soft / soft.sum(1, keepdim=True), torch.rand(N, generator=generator, dtype=torch.float64)


def brute_losses(x, w, psi, scale):
    """Return −log softmax with each class as the target, (n, C). Only the target's cosine becomes ψ(θ)."""
    x, w = x.numpy(), w.detach().numpy()
    cos = (x @ w.T) / np.linalg.norm(x, axis=1)[:, None] / np.linalg.norm(w, axis=1)
    losses = np.empty_like(cos)
    for i, row in enumerate(cos):
        for c in range(len(row)):
            z = scale * row
            z[c] = scale * psi(row[c])
            losses[i, c] = np.log(np.exp(z - z.max()).sum()) + z.max() - z[c]
    return losses


HEADS = {
    "no margin": (lambda: objectives.SSoftmax(D, C, scale=8.0), lambda c: c, 8.0),
    "cosine": (lambda: objectives.CosFace(D, C, m=0.3, scale=8.0), lambda c: c - 0.3, 8.0),
    "angle": (lambda: objectives.ArcFace(D, C, m=0.3, scale=8.0), lambda c: extended(np.arccos(c) + 0.3), 8.0),
}


def extended(u):
    k = np.floor(u / np.pi)
    return np.cos(u - k * np.pi) - 2 * k


@pytest.mark.parametrize("name", HEADS)
def test_soft_targets_are_the_mean_over_the_labels_that_they_describe(name, batch):
    make, psi, scale = HEADS[name]
    x, soft, weights = batch
    head = make().double()
    losses = (soft.numpy() * brute_losses(x, head.weight, psi, scale)).sum(1)
    assert head(x, Targets(soft=soft)).item() == pytest.approx(losses.mean(), rel=1e-12)
    head.reduction = "none"
    found = head(x, Targets(soft=soft, weights=weights))
    assert np.allclose(found.detach().numpy(), losses * weights.numpy(), rtol=1e-12)


@pytest.mark.parametrize("kind", ["Softmax", "LSoftmax", "WSoftmax", "SphereFace", "GASoftmax", "AdaFace", "MagFace"])
def test_one_hot_soft_targets_are_labels(kind, batch):
    x, _, weights = batch
    labels = torch.tensor([0, 4, 2, 2, 1, 3])
    head = getattr(objectives, kind)(D, C, dtype=torch.float64).double().eval()
    soft = torch.nn.functional.one_hot(labels, C).double()
    leaf = x.clone().requires_grad_()
    results = []
    for targets in (Targets(labels, weights=weights), Targets(soft=soft, weights=weights)):
        loss = head(leaf, targets)
        results.append((loss, *torch.autograd.grad(loss, (leaf, head.weight))))
    for a, b in zip(*results, strict=True):
        assert torch.allclose(a, b, rtol=1e-10, atol=1e-12)


def test_statistics_of_a_margin_do_not_depend_on_how_the_targets_are_given(batch):
    x, soft, _ = batch
    first = objectives.AdaFace(D, C).double()
    second = copy.deepcopy(first)
    first(x, soft.argmax(1))
    second(x, Targets(soft=soft))
    assert torch.allclose(first.margin.mean, second.margin.mean)
    assert torch.allclose(first.margin.deviation, second.margin.deviation)


def test_soft_targets_have_exact_gradients(batch):
    x, soft, _ = batch
    w = torch.randn(C, D, dtype=torch.float64, requires_grad=True)
    margin = objectives.margins.AdditiveAngle(0.2)
    x.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x, w: margin_softmax(x, w, Targets(soft=soft), margin=margin, scale=4.0), (x, w)
    )


@pytest.mark.parametrize("comparison", [CrossEntropy(), CrossEntropy(0.1), Binary(), MultiClassHinge()], ids=str)
def test_all_but_each_class(comparison):
    z = torch.randn(3, 5, dtype=torch.float64) * 4
    z[0, 1] += 200  # dominates the sum
    for mine, plain in zip(comparison.of_all_but_each(z), Comparison.of_all_but_each(comparison, z), strict=True):
        assert torch.allclose(mine, plain, rtol=1e-12)


@pytest.mark.parametrize("chunk", ["auto", None, 2])
@pytest.mark.parametrize("ignored", [False, True])
def test_weighted_means_and_sums(chunk, ignored, batch):
    x, _, weights = batch
    labels = torch.tensor([0, 4, -100 if ignored else 2, 2, 1, 3])
    head = objectives.ArcFace(D, C, m=0.3, scale=8.0, chunk=chunk).double()
    losses = brute_losses(x, head.weight, lambda c: extended(np.arccos(c) + 0.3), 8.0)
    each = np.array([0.0 if y < 0 else losses[i, y] for i, y in enumerate(labels.tolist())])
    w = np.where(labels.numpy() < 0, 0.0, weights.numpy())
    targets = Targets(labels, weights=weights)
    assert head(x, targets).item() == pytest.approx((w * each).sum() / w.sum(), rel=1e-12)
    head.reduction = "sum"
    assert head(x, targets).item() == pytest.approx((w * each).sum(), rel=1e-12)
    head.reduction = "mean"
    assert head(x, Targets(labels, weights=torch.zeros(N, dtype=torch.float64))).item() == 0


def divided_loss(group, head, x, labels, weights):
    head = copy.deepcopy(head).shard(group)
    rank = dist.get_rank(group)
    mine = slice(0, 2) if rank == 0 else slice(2, None)
    loss = head(x[mine], Targets(labels[mine], weights=weights[mine]))
    loss.backward()
    return loss.detach(), head.weight.grad.full_tensor()


@pytest.mark.untyped
def test_sample_weights_of_a_divided_head(batch, pool):
    x, _, weights = batch
    labels = torch.tensor([0, 4, 2, 2, 1, 3])
    head = objectives.ArcFace(D, C).double()
    loss = head(x, Targets(labels, weights=weights))
    loss.backward()
    gradient, head.weight.grad = head.weight.grad, None
    for found, by_weight in pool.run(divided_loss, head, x, labels, weights, processes=2):
        assert torch.allclose(found, loss)
        assert torch.allclose(by_weight, gradient)


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("make", "targets", "message"),
    [
        (lambda: objectives.ArcFace(D, C, chunk=2), lambda s: Targets(soft=s), "need all classes at once"),
        (lambda: objectives.ArcFace(D, C, sample=0.5), lambda s: Targets(soft=s), "need all classes at once"),
        (lambda: objectives.CurricularFace(D, C), lambda s: Targets(soft=s), "Curricular also changes the other"),
        (lambda: objectives.AdaCos(D, C), lambda s: Targets(soft=s), "AdaCos sets its scale from labels"),
        (lambda: objectives.ArcFace(D, C), lambda s: Targets(soft=s[:, 1:]), r"must be \(6, 5\), as the logits"),
        (lambda: objectives.ArcFace(D, C), lambda s: Targets(soft=2 * s), "sum to 1"),
        (lambda: objectives.ArcFace(D, C), lambda s: Targets(s.argmax(1), weights=-s[:, 0]), "must be numbers ≥ 0"),
        (lambda: objectives.ArcFace(D, C), lambda s: Targets(), "and not both"),
        (lambda: objectives.ArcFace(D, C), lambda s: Targets(s.argmax(1), soft=s), "and not both"),
        (lambda: objectives.ArcFace(D, C), lambda s: Targets(s.argmax(1), weights=s), "one per sample"),
        (lambda: objectives.ArcFace(D, C), lambda s: Targets(soft=s[0]), "must be probabilities"),
    ],
)
def test_refuses(make, targets, message, batch):
    x, soft, _ = batch
    with pytest.raises(ValueError, match=message):
        make().double()(x, targets(soft))
