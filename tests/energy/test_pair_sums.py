import pytest
import torch

from hypersphere.energy.kernels import AngularRiesz, Gaussian, Riesz
from hypersphere.energy.pair_sums import dense_sums, pair_sums, value_and_gradient

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
