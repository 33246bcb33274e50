import pytest
import torch
from torch import nn

from hypersphere.orthogonal import Muon, orthogonalize
from tests.orthogonal.test_matrix_optimizer import MatrixOptimizerContract


class TestMuon(MatrixOptimizerContract):
    @staticmethod
    def make(params, **options):
        return Muon(params, **options)


with_torch = pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="PyTorch has Muon since 2.9")


@with_torch
@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("adjust", ["original", "match_rms_adamw"])
@pytest.mark.parametrize("shape", [(6, 10), (10, 6), (8, 8)])
def test_matrices_move_as_with_torch(shape, adjust, nesterov):
    ours, theirs = nn.Parameter(torch.randn(shape)), None
    theirs = nn.Parameter(ours.detach().clone())
    options = {"lr": 0.1, "weight_decay": 0.05, "nesterov": nesterov}
    optimizers = [
        Muon([ours], adjust=adjust, half=True, **options),
        torch.optim.Muon([theirs], adjust_lr_fn=adjust, **options),
    ]
    for _ in range(5):
        g = torch.randn(shape)
        for p, optimizer in zip((ours, theirs), optimizers, strict=True):
            p.grad = g.clone()
            optimizer.step()
    assert torch.equal(ours, theirs)  # the same products in the same precision


@with_torch
def test_torch_takes_no_convolutions():
    with pytest.raises(ValueError, match="2D"):
        torch.optim.Muon([nn.Parameter(torch.zeros(2, 2, 3, 3))])


@pytest.mark.parametrize("shape", [(5, 9), (9, 5), (3, 4, 6)])
def test_singular_vectors_stay_and_values_come_near_one(shape):
    x = torch.randn(shape, dtype=torch.float64)
    u, s, vh = torch.linalg.svd(x, full_matrices=False)
    inner = u.mT @ orthogonalize(x) @ vh.mT
    diagonal = inner.diagonal(dim1=-2, dim2=-1)
    assert torch.allclose(inner, torch.diag_embed(diagonal), atol=1e-10)
    large = s > 0.1 * s.amax(-1, keepdim=True)
    assert (diagonal[large] > 0.6).all()
    assert (diagonal < 1.3).all()


@pytest.mark.untyped
def test_options_are_checked():
    with pytest.raises(ValueError, match="adjust must be original or match_rms_adamw, got 'none'"):
        Muon([nn.Parameter(torch.zeros(2, 2))], adjust="none")
    with pytest.raises(ValueError, match="steps must be an integer ≥ 1, got 0"):
        Muon([nn.Parameter(torch.zeros(2, 2))], steps=0)
    with pytest.raises(ValueError, match="weight_decay must be a number ≥ 0"):
        Muon([nn.Parameter(torch.zeros(2, 2))], weight_decay=-1)
