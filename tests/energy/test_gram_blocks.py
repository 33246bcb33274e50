import numpy as np
import pytest
import torch

from hypersphere.energy.gram_blocks import ClosePairs, Pass, close_limit, squared_distances, wide_dtype, zero_self_pairs
from hypersphere.energy.kernels import Riesz
from hypersphere.energy.pair_sums import pair_sums
from hypersphere.geometry.fast_norms import directions


@pytest.mark.parametrize("half_space", [False, True])
def test_rows_a_few_at_a_time_or_all_at_once(half_space):
    x, _ = directions(torch.randn(3, 10, 4))
    grads = [torch.full_like(x, torch.nan) for _ in range(2)]  # NaN stands for uninitialized memory
    totals = [
        Pass(Riesz(2), half_space, x, x, grad, None).triangle(chunk) for grad, chunk in zip(grads, (3, 10), strict=True)
    ]
    assert torch.allclose(*totals, rtol=1e-5)
    assert torch.allclose(*grads, rtol=1e-3, atol=1e-4 * grads[1].abs().max().item())


def test_self_and_distances():
    cos = zero_self_pairs(torch.ones(1, 2, 2), None)
    assert cos.tolist() == [[[0, 1], [1, 0]]]
    assert zero_self_pairs(torch.ones(1, 1, 3), torch.tensor([2])).tolist() == [[[1, 1, 0]]]
    q, opposite = squared_distances(cos, None)
    assert torch.equal(q + opposite, torch.full_like(q, 4))


@pytest.mark.parametrize("gap", [1e-1, 1e-2, 1e-3, 1e-4, 1e-5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_distances_by_differences(gap, dtype):
    w = torch.randn(1, 2, 300, dtype=dtype)
    w[0, 1] = 3 * (w[0, 0] + gap * w[0, 0].norm() * torch.nn.functional.normalize(torch.randn(300, dtype=dtype), dim=0))
    x = w[0].numpy().astype(np.longdouble)
    x = x / np.sqrt((x**2).sum(1, keepdims=True))
    exact = float(2 / ((x[0] - x[1]) ** 2).sum())
    assert pair_sums(w, Riesz(2)).item() == pytest.approx(exact, rel=2e-5)


def test_a_collapsed_layer_is_done_in_parts():
    w = torch.ones(1, 64, 5000) + 1e-3 * torch.randn(1, 64, 5000)
    x = torch.nn.functional.normalize(w[0].double(), dim=1)
    q = (2 - 2 * x @ x.T)[~torch.eye(64, dtype=torch.bool)]
    assert pair_sums(w, Riesz(2)).item() == pytest.approx((1 / q).sum().item(), rel=1e-6)


def test_adds_to_what_is_there():
    total = torch.ones(1, dtype=torch.float64)
    i = torch.zeros(1, dtype=torch.long)
    ClosePairs(Riesz(2), False, torch.eye(2)[None], None, None).add(total, i, i, i + 1, torch.ones(1), torch.ones(1))
    assert total.item() == pytest.approx(1.5)


def test_limits_of_close_pairs_and_wide_dtypes():
    assert close_limit(torch.ones(1)) > close_limit(torch.ones(1, dtype=torch.float64))
    assert wide_dtype(torch.ones(1)) == torch.float64
    assert wide_dtype(torch.ones(1, device="meta")) == torch.float64
