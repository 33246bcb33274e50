"""Agreement with pytorch-metric-learning where the definitions coincide, and what happens where they do not."""

import math

import pytest
import torch
from pytorch_metric_learning import losses as pml

from hypersphere.objectives import AMSoftmax, ArcFace, ASoftmax, LSoftmax, SSoftmax
from hypersphere.objectives.margins import AdditiveAngle

pytestmark = pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")

DIM, CLASSES = 6, 9


def batch(seed=7):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(32, DIM, generator=generator, dtype=torch.float64)
    return x, torch.randint(0, CLASSES, (32,), generator=generator)


def agree(head, peer, x, y):
    peer = peer.double()
    peer.W.data = head.weight.detach().T.clone()
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    mine, theirs = head(a, y), peer(b, y)
    mine.backward()
    theirs.backward()
    assert torch.allclose(mine, theirs, atol=1e-9)
    assert torch.allclose(a.grad, b.grad, atol=1e-8)
    assert torch.allclose(head.weight.grad, peer.W.grad.T, atol=1e-8)


@pytest.mark.parametrize("chunk", [None, 4])
@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_large_margin_softmax(m, chunk):
    x, y = batch()
    # PML's CosineSimilarity replaces the features by their directions first, so its ‖x‖ is always 1.
    x = torch.nn.functional.normalize(x)
    head = LSoftmax(DIM, CLASSES, m=m, dtype=torch.float64, chunk=chunk)
    peer = pml.LargeMarginSoftmaxLoss(CLASSES, DIM, margin=m, scale=1)
    peer = peer.double()
    peer.W.data = head.weight.detach().T.clone()
    assert torch.allclose(head(x, y), peer(x, y), atol=1e-9)


@pytest.mark.parametrize("chunk", [None, 4])
@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_sphereface(m, chunk):
    x, y = batch()
    head = ASoftmax(DIM, CLASSES, m=m, dtype=torch.float64, chunk=chunk)
    agree(head, pml.SphereFaceLoss(CLASSES, DIM, margin=m, scale=1), x, y)


@pytest.mark.parametrize("chunk", [None, 4])
def test_cosface(chunk):
    x, y = batch()
    head = AMSoftmax(DIM, CLASSES, m=0.35, scale=64.0, dtype=torch.float64, chunk=chunk)
    agree(head, pml.CosFaceLoss(CLASSES, DIM, margin=0.35, scale=64), x, y)


@pytest.mark.parametrize("chunk", [None, 4])
def test_arcface_up_to_the_fallback(chunk):
    x, y = batch()
    head = ArcFace(DIM, CLASSES, m=0.5, scale=64.0, dtype=torch.float64, chunk=chunk)
    keep = torch.nn.functional.cosine_similarity(x, head.weight[y]) > math.cos(math.pi - 0.5)
    assert keep.sum() >= 20
    agree(head, pml.ArcFaceLoss(CLASSES, DIM, margin=math.degrees(0.5), scale=64), x[keep], y[keep])


def test_arcface_beyond_it_the_peer_jumps():
    """Past θ = π − m PML subtracts m·sin m from the cosine, which jumps there; ours is continuous."""
    peer = pml.ArcFaceLoss(CLASSES, DIM, margin=math.degrees(0.5))
    cos = torch.cos(torch.tensor([math.pi - 0.5 - 1e-6, math.pi - 0.5 + 1e-6], dtype=torch.float64))
    theirs = peer.modify_cosine_of_target_classes(cos).diff().abs()
    ours = AdditiveAngle(0.5).target(cos).diff().abs()
    assert theirs > 0.1
    assert ours < 1e-6


@pytest.mark.parametrize("chunk", [None, 4])
def test_normalized_softmax(chunk):
    x, y = batch()
    head = SSoftmax(DIM, CLASSES, scale=20.0, dtype=torch.float64, chunk=chunk)
    agree(head, pml.NormalizedSoftmaxLoss(CLASSES, DIM, temperature=0.05), x, y)


@pytest.mark.parametrize("chunk", [None, 4])
def test_sub_center_arcface(chunk):
    x, y = batch()
    head = ArcFace(DIM, CLASSES, m=0.1, scale=30.0, sub_centers=3, dtype=torch.float64, chunk=chunk)
    peer = pml.SubCenterArcFaceLoss(
        num_classes=CLASSES, embedding_size=DIM, margin=math.degrees(0.1), scale=30, sub_centers=3
    )
    agree(head, peer, x, y)


def test_where_the_peer_fails_we_do_not():
    """For a feature along its class, PML's ArcFace has NaN gradients. PML's SphereFace turns m = 1.5 into 1."""
    head = ArcFace(DIM, CLASSES)
    peer = pml.ArcFaceLoss(CLASSES, DIM)
    peer.W.data = head.weight.detach().T.clone()
    x = (2 * head.weight.detach()[:4]).requires_grad_()
    ours, theirs = (torch.autograd.grad(loss(x, torch.arange(4)), x)[0] for loss in (head, peer))
    assert torch.isfinite(ours).all()
    assert not torch.isfinite(theirs).all()
    assert pml.SphereFaceLoss(CLASSES, DIM, margin=1.5).margin == 1
    assert ASoftmax(DIM, CLASSES, m=1.5).margin.m == 1.5
