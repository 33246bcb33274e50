import pytest
import torch

from hypersphere.energy import whole_gram
from hypersphere.energy.kernels import AngularRiesz, Gaussian, Riesz
from hypersphere.energy.pair_sums import dense_sums
from hypersphere.energy.whole_gram import HALVED, whole_gram_sums


@pytest.mark.parametrize(
    "kernel",
    [Riesz(0), Riesz(2), Riesz(3.5), AngularRiesz(1), Gaussian(2)],
    ids=lambda k: f"{type(k).__name__}-{k.parameters}",
)
@pytest.mark.parametrize("half_space", [False, True])
@pytest.mark.parametrize("dim", [5, 40])
@pytest.mark.parametrize("case", ["plain", "close", "opposite", "zero row", "tiny", "huge"])
def test_short_and_long_neurons_agree_with_the_whole_gram_matrix(kernel, half_space, dim, case):
    w = torch.randn(3, 9, dim)
    if case == "close":
        w[1, 1] = 2 * w[1, 0] + 1e-3
    elif case == "opposite":
        w[1, 1] = 1e-3 - w[1, 0]
    elif case == "zero row":
        w[2, 3] = 0
    elif case != "plain":
        w[0] *= 1e-13 if case == "tiny" else 1e18
    exact = w.double().requires_grad_()
    dense = dense_sums(exact, kernel, half_space)
    (expected,) = torch.autograd.grad(dense.sum(), exact)
    sums, grad = whole_gram_sums(kernel, half_space, w, True)
    assert torch.allclose(sums.double(), dense, rtol=1e-3)
    scale = w.double().norm(dim=2, keepdim=True)  # the gradient goes as 1/‖w‖
    assert ((grad.double() - expected) * scale).norm() <= 2e-3 * (expected * scale).norm()
    assert torch.equal(whole_gram_sums(kernel, half_space, w, False)[0], sums)


def test_many_matrices_in_the_same_memory():
    w = torch.randn(30, 130, 3)
    sums, grad = whole_gram_sums(Riesz(1), True, w, True)
    one_by_one = [whole_gram_sums(Riesz(1), True, x[None], True) for x in w]
    assert torch.allclose(sums, torch.cat([s for s, _ in one_by_one]), rtol=1e-5)
    assert torch.allclose(grad, torch.cat([g for _, g in one_by_one]), rtol=1e-3, atol=1e-3 * grad.abs().max().item())


@pytest.mark.parametrize("half_space", [False, True])
@pytest.mark.parametrize("kernel", [Riesz(2), Riesz(1), Gaussian(2)], ids=str)
@pytest.mark.parametrize("n", [HALVED, HALVED + 1])
def test_many_neurons_by_halves_agree_with_float64(kernel, half_space, n):
    w = torch.randn(3, n, 6)
    w[1, n - 1] = w[1, 0] + 1e-3  # a close pair, one of each half
    exact = w.double().requires_grad_()
    dense = dense_sums(exact, kernel, half_space)
    (expected,) = torch.autograd.grad(dense.sum(), exact)
    sums, grad = whole_gram_sums(kernel, half_space, w, True)
    assert torch.allclose(sums.double(), dense, rtol=1e-4)
    assert (grad.double() - expected).norm() <= 1e-3 * expected.norm()
    assert torch.equal(whole_gram_sums(kernel, half_space, w, False)[0], sums)


def test_a_close_pair_changes_nothing_for_the_other_matrices(monkeypatch):
    monkeypatch.setattr(whole_gram, "BLOCK_ENTRIES", 3 * 40**2)  # two blocks
    w = torch.randn(5, 40, 4)
    plain = whole_gram_sums(Riesz(2), False, w, True)
    w[3, 5] = w[3, 4] + 1e-4
    sums, grad = whole_gram_sums(Riesz(2), False, w, True)
    others = [0, 1, 2, 4]
    assert torch.equal(sums[others], plain[0][others])
    assert torch.equal(grad[others], plain[1][others])
    assert sums[3] > plain[0][3]


def test_half_precision_is_computed_in_single():
    w = torch.randn(1, 6, 20).bfloat16()
    sums, grad = whole_gram_sums(Riesz(2), False, w, True)
    assert (sums.dtype, grad.dtype) == (torch.float32, torch.bfloat16)
