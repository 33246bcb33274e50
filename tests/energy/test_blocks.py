import pytest
import torch

from hypersphere.energy.blocks import Pass, directions, squared_distances, through_normalization, without_self
from hypersphere.energy.kernels import Riesz


@pytest.mark.parametrize("size", [1e-30, 1e-13, 1.0, 1e18, 1e30])
def test_directions_of_any_length(size):
    w = torch.randn(2, 3, 7)
    x, length = directions(w * size)
    assert torch.allclose(x, torch.nn.functional.normalize(w, dim=2), atol=1e-6)
    assert torch.allclose(length, w.norm(dim=2, keepdim=True) * size, rtol=1e-5)


def test_a_zero_row_has_no_direction_and_no_gradient():
    w = torch.randn(1, 3, 4)
    w[0, 1] = 0
    x, length = directions(w)
    assert x[0, 1].eq(0).all()
    assert through_normalization(torch.ones_like(x), x, length)[0, 1].eq(0).all()


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
