import pytest
import torch

from hypersphere.operators import tiling
from hypersphere.operators.tiling import TileSum, allocate_gradient, differentiate, sum_into


@pytest.mark.parametrize(("n", "tile"), [(5, 8), (5, 1), (1, 4), (7, 10**6)])
def test_tiles_are_the_whole_once(n, tile, monkeypatch):
    monkeypatch.setattr(tiling, "TILE", tile)
    x = torch.randn(n, 3)
    parts = [x[part] for part in tiling.iterate_tiles(x)]
    assert torch.equal(torch.cat(parts), x)
    assert all(len(part) for part in parts)
    assert max(part.numel() for part in parts) <= max(tile * torch.get_num_threads(), 3)


def test_an_empty_tensor_and_another_device():
    assert list(tiling.iterate_tiles(torch.empty(0, 3))) == []
    assert list(tiling.iterate_tiles(torch.empty(4, 10**7, device="meta"))) == [slice(0, 4)]


def test_sums():
    tile = torch.randn(2, 3, 4, dtype=torch.float64)
    for shape in [(2, 1, 4), (2, 3, 1), (2, 1, 1), (2, 3, 4)]:
        out = torch.empty(shape, dtype=torch.float64)
        sum_into(out, tile)
        assert torch.allclose(out, tile.sum_to_size(shape))
    total = TileSum(torch.empty(3, 1, dtype=torch.float64))
    total.add(tile)
    total.add(tile)
    assert torch.allclose(total.sum, 2 * tile.sum((0, 2))[:, None])
    nothing = TileSum(None)
    nothing.add(tile)
    assert nothing.sum is None


class _Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, ours):
        ctx.kept, ctx.ours = x.clone(), ours
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        room = allocate_gradient(ctx.kept, ctx.ours)
        ctx.kept_was_given = room is ctx.kept
        return torch.mul(grad, 2, out=room), None


@pytest.mark.parametrize(("ours", "retain", "given"), [(True, False, True), (True, True, False), (False, False, False)])
def test_a_saved_tensor_is_overwritten_only_if_owned_and_not_used_again(ours, retain, given):
    y = _Twice.apply(torch.ones(3, requires_grad=True), ours)
    node = y.grad_fn
    y.sum().backward(retain_graph=retain)
    assert node.kept_was_given is given


def test_memory_of_another_dtype_is_allocated():
    assert allocate_gradient(torch.ones(3), owned=False, dtype=torch.bfloat16).dtype == torch.bfloat16


def test_gradients_with_a_graph_are_computed_only_if_needed():
    x, y = (torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    first, nothing, second = differentiate(
        lambda a, b, c: a.square() * c, (x, None, y), torch.ones(3), (True, False, True)
    )
    assert nothing is None
    assert torch.allclose(first, 2 * x * y)
    assert torch.allclose(second, x.square())
    assert first.requires_grad
