import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hypersphere.evaluation import alignment, uniformity


def unit(rows):
    return [[v / math.sqrt(sum(u * u for u in row)) for v in row] for row in rows]


def brute_uniformity(x, t):
    rows = unit(x.tolist())
    pairs = [sum((a - b) ** 2 for a, b in zip(p, q, strict=True)) for i, p in enumerate(rows) for j, q in enumerate(rows) if i != j]
    return math.log(sum(math.exp(-t * s) for s in pairs) / len(pairs))


@given(st.integers(2, 12), st.integers(1, 4), st.sampled_from([0.5, 1, 2]), st.integers(1, 15), st.integers(0, 99))
def test_uniformity_is_that_of_loops(n, d, t, chunk, seed):
    x = torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    x[-1] = x[0] * 3  # a duplicate direction
    assert uniformity(x, t, chunk=chunk).item() == pytest.approx(brute_uniformity(x, t), abs=1e-10)
    assert uniformity(x.flip(0), t).item() == pytest.approx(uniformity(x, t).item(), abs=1e-10)


@pytest.mark.parametrize("alpha", [1, 2, 3.5])
def test_alignment_is_that_of_loops(alpha):
    x, y = torch.randn(20, 5, dtype=torch.float64), torch.randn(20, 5, dtype=torch.float64)
    pairs = zip(unit(x.tolist()), unit(y.tolist()), strict=True)
    expected = sum(math.dist(p, q) ** alpha for p, q in pairs) / 20
    assert alignment(x, y, alpha).item() == pytest.approx(expected)


def test_gradients():
    x, y = (torch.randn(5, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(lambda a, b: alignment(a, b), (x, y))
    assert torch.autograd.gradcheck(lambda a: uniformity(a, chunk=2), x)


def test_equal_rows_have_finite_gradients():
    x = torch.ones(4, 3, requires_grad=True)
    (alignment(x, x.flip(0)) + uniformity(x)).backward()
    assert x.grad.isfinite().all()
    assert uniformity(x).item() == pytest.approx(0, abs=1e-6)


def test_refuses():
    with pytest.raises(ValueError, match="at least two rows"):
        uniformity(torch.rand(1, 3))
    with pytest.raises(ValueError, match="t must be a number > 0"):
        uniformity(torch.rand(2, 3), 0)
    with pytest.raises(ValueError, match="alpha must be a number > 0"):
        alignment(torch.rand(2, 3), torch.rand(2, 3), -1)


@pytest.mark.untyped
def test_alignment_refuses_rows_that_do_not_pair():
    with pytest.raises(ValueError, match="rows of the same positive pairs"):
        alignment(torch.rand(2, 3), torch.rand(4, 3))
