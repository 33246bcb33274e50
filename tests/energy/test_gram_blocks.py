import pytest
import torch

from hypersphere.energy.gram_blocks import Pass, squared_distances, without_self
from hypersphere.energy.kernels import Riesz
from hypersphere.geometry.directions import directions


@pytest.mark.parametrize("half_space", [False, True])
def test_rows_a_few_at_a_time_or_all_at_once(half_space):
    x, _ = directions(torch.randn(3, 10, 4))
    grads = [torch.full_like(x, torch.nan) for _ in range(2)]  # whatever the memory held before
    totals = [
        Pass(Riesz(2), half_space, x, x, grad, None).triangle(chunk) for grad, chunk in zip(grads, (3, 10), strict=True)
    ]
    assert torch.allclose(*totals, rtol=1e-5)
    assert torch.allclose(*grads, rtol=1e-3, atol=1e-4 * grads[1].abs().max().item())


def test_self_and_distances():
    cos = without_self(torch.ones(1, 2, 2), None)
    assert cos.tolist() == [[[0, 1], [1, 0]]]
    assert without_self(torch.ones(1, 1, 3), torch.tensor([2])).tolist() == [[[1, 1, 0]]]
    q, opposite = squared_distances(cos, None)
    assert torch.equal(q + opposite, torch.full_like(q, 4))
