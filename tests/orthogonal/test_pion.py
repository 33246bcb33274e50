import pytest
import torch
from torch import nn

from hypersphere.orthogonal import Pion
from tests.orthogonal.test_matrix_optimizer import MatrixOptimizerContract


class TestPion(MatrixOptimizerContract):
    @staticmethod
    def make(params, **options):
        return Pion(params, **options)


def descend(w, target, steps, **options):
    optimizer = Pion([w], **options)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (w - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(("exact", "tolerance"), [(True, 1e-12), (False, 1e-5)])
@pytest.mark.parametrize("shape", [(5, 8), (8, 5)])
def test_the_spectrum_stays_while_the_loss_falls(shape, exact, tolerance):
    w = nn.Parameter(torch.randn(shape, dtype=torch.float64))
    before = torch.linalg.svdvals(w.detach())
    q, _ = torch.linalg.qr(torch.randn(shape[0], shape[0], dtype=torch.float64))
    p, _ = torch.linalg.qr(torch.randn(shape[1], shape[1], dtype=torch.float64))
    losses = descend(w, q @ w.detach() @ p, 100, lr=0.1, exact=exact)
    assert losses[-1] < 0.5 * losses[0]
    assert torch.allclose(torch.linalg.svdvals(w.detach()), before, atol=tolerance)


def test_one_step_by_the_matrix_exponential():
    w = nn.Parameter(torch.randn(4, 6, dtype=torch.float64))
    w0, g = w.detach().clone(), torch.randn(4, 6, dtype=torch.float64)
    w.grad = g.clone()
    Pion([w], lr=0.3, momentum=0.0, exact=True).step()
    left, right = g @ w0.T - w0 @ g.T, w0.T @ g - g.T @ w0
    change = left @ w0 + w0 @ right
    rate = 0.3 * 0.2 / change.square().mean().sqrt()
    expected = torch.linalg.matrix_exp(-rate * left) @ w0 @ torch.linalg.matrix_exp(-rate * right)
    assert torch.allclose(w, expected, atol=1e-12)


def test_a_small_step_has_the_size_it_promises():
    w = nn.Parameter(torch.randn(40, 30, dtype=torch.float64))
    w0 = w.detach().clone()
    w.grad = torch.randn_like(w)
    Pion([w], lr=1e-4).step()
    assert (w - w0).square().mean().sqrt().item() == pytest.approx(0.2 * 1e-4, rel=1e-3)


def test_options_are_checked():
    with pytest.raises(ValueError, match="rms must be a number > 0, got 0"):
        Pion([nn.Parameter(torch.zeros(2, 2))], rms=0)
