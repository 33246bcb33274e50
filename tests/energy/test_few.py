import pytest
import torch

from hypersphere.energy.few import few_neurons
from hypersphere.energy.kernels import AngularRiesz, Gaussian, Riesz
from hypersphere.energy.pair_sums import dense_sums


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
    sums, grad = few_neurons(kernel, half_space, w, True)
    assert torch.allclose(sums.double(), dense, rtol=1e-3)
    scale = w.double().norm(dim=2, keepdim=True)  # the gradient goes as 1/‖w‖
    assert ((grad.double() - expected) * scale).norm() <= 2e-3 * (expected * scale).norm()
    assert torch.equal(few_neurons(kernel, half_space, w, False)[0], sums)


def test_many_matrices_in_the_same_memory():
    w = torch.randn(30, 130, 3)
    sums, grad = few_neurons(Riesz(1), True, w, True)
    one_by_one = [few_neurons(Riesz(1), True, x[None], True) for x in w]
    assert torch.allclose(sums, torch.cat([s for s, _ in one_by_one]), rtol=1e-5)
    assert torch.allclose(grad, torch.cat([g for _, g in one_by_one]), rtol=1e-3, atol=1e-3 * grad.abs().max().item())


def test_half_precision_is_computed_in_single():
    w = torch.randn(1, 6, 20).bfloat16()
    sums, grad = few_neurons(Riesz(2), False, w, True)
    assert (sums.dtype, grad.dtype) == (torch.float32, torch.bfloat16)
