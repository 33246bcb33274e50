import pytest
import torch

from hypersphere.energy import pair_sums as module
from hypersphere.energy.kernels import AngularRiesz, Gaussian, Riesz
from hypersphere.energy.pair_sums import (
    MIN_NEURONS_TO_HALVE,
    dense_sums,
    pair_sums,
    value_and_gradient,
    whole_gram_sums,
)

KERNELS = [Riesz(0), Riesz(1), Riesz(2), Riesz(3.5), AngularRiesz(2), Gaussian(2)]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: f"{type(k).__name__}-{k.parameters}")
@pytest.mark.parametrize("half_space", [False, True])
@pytest.mark.parametrize("rows", [None, [1, 5, 3]])
def test_chunks_and_the_whole_gram_matrix_agree(kernel, half_space, rows):
    w = torch.randn(3, 11, 4, dtype=torch.float64)
    w[:, 1] = w[:, 0] * 2 + 3e-4
    w[:, 4] = -w[:, 5] + 3e-4
    options = {
        "half_space": half_space,
        "importance": None if isinstance(kernel, AngularRiesz) else torch.rand(11, dtype=torch.float64) + 0.5,
    }
    if rows is not None:
        options |= {"rows": torch.tensor(rows), "counts": torch.tensor([1.0, 2.0, 1.0])}
    for chunk in (2, None):
        own, dense = w.clone().requires_grad_(), w.clone().requires_grad_()
        a, b = pair_sums(own, kernel, chunk=chunk, **options), dense_sums(dense, kernel, **options)
        assert torch.allclose(a, b, rtol=1e-6)
        weights = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
        (a * weights).sum().backward()
        (b * weights).sum().backward()
        assert (own.grad - dense.grad).norm() <= 1e-6 * dense.grad.norm()


@pytest.mark.parametrize("kernel", [Riesz(2), AngularRiesz(1)], ids=["riesz", "angular"])
def test_rows_gradcheck_twice(kernel):
    w = torch.randn(1, 6, 3, dtype=torch.float64, requires_grad=True)
    rows, counts = torch.tensor([4, 0]), torch.tensor([2.0, 1.0])
    assert torch.autograd.gradcheck(lambda w: pair_sums(w, kernel, rows=rows, counts=counts), w)
    assert torch.autograd.gradgradcheck(lambda w: pair_sums(w, kernel, rows=rows, counts=counts), w)


def test_all_rows_are_all_pairs():
    w = torch.randn(2, 7, 5)
    assert torch.allclose(pair_sums(w, Riesz(1), rows=torch.arange(7)), pair_sums(w, Riesz(1)))


def test_value_and_gradient_without_autograd():
    w = torch.randn(2, 7, 5, requires_grad=True)
    value, gradient = value_and_gradient(w.detach(), Riesz(2), True)
    sums = pair_sums(w, Riesz(2), half_space=True)
    assert torch.equal(value, sums)
    assert torch.equal(gradient, torch.autograd.grad(sums.sum(), w)[0])


def test_no_gradient_is_computed_for_nothing():
    with torch.no_grad():
        assert pair_sums(torch.randn(1, 4, 3, requires_grad=True), Riesz(2)).grad_fn is None


def test_strides_do_not_matter():
    w = torch.randn(7, 5, 2).permute(2, 0, 1)
    w[:, 1] = w[:, 0]
    first, second = (
        torch.autograd.grad(pair_sums(x, Riesz(2)).sum(), x)[0]
        for x in (w.requires_grad_(), w.detach().contiguous().requires_grad_())
    )
    assert torch.equal(first, second)


def test_a_large_batch_is_taken_in_parts():
    w = torch.randn(40, 200, 3)
    assert torch.allclose(pair_sums(w, Riesz(1)), torch.cat([pair_sums(x[None], Riesz(1)) for x in w]), rtol=1e-5)


def test_memory_is_linear_in_the_neurons():
    """The gradient of 3000 neurons; all pairs at once would be 9 million entries."""
    w = torch.randn(1, 3000, 32, requires_grad=True)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for t in out if isinstance(out, tuple | list) else [out]:
                largest = max(largest, t.numel() if isinstance(t, torch.Tensor) else 0)
            return out

    with Watch():
        pair_sums(w, Riesz(2), half_space=True).sum().backward()
    assert 0 < largest <= 1 << 20


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
@pytest.mark.parametrize("n", [MIN_NEURONS_TO_HALVE, MIN_NEURONS_TO_HALVE + 1])
def test_many_neurons_by_halves_agree_with_float64(kernel, half_space, n):
    w = torch.randn(3, n, 6)
    w[1, n - 1] = w[1, 0] + 1e-3  # a close pair across the two halves
    exact = w.double().requires_grad_()
    dense = dense_sums(exact, kernel, half_space)
    (expected,) = torch.autograd.grad(dense.sum(), exact)
    sums, grad = whole_gram_sums(kernel, half_space, w, True)
    assert torch.allclose(sums.double(), dense, rtol=1e-4)
    assert (grad.double() - expected).norm() <= 1e-3 * expected.norm()
    assert torch.equal(whole_gram_sums(kernel, half_space, w, False)[0], sums)


def test_a_close_pair_changes_nothing_for_the_other_matrices(monkeypatch):
    monkeypatch.setattr(module, "BLOCK_ENTRIES", 3 * 40**2)  # two blocks
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
