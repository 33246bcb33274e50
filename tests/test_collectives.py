import copy

import pytest
import torch
import torch.distributed as dist

from hypersphere import collectives
from hypersphere.collectives import (
    as_share,
    gather_rows,
    gather_weight,
    gather_weight_rows,
    get_first_row,
    get_local,
    get_local_rows,
    is_sharded,
    sum_shares,
)
from hypersphere.objectives import ArcFace

pytestmark = pytest.mark.untyped


def test_a_plain_weight_is_its_own():
    weight = torch.randn(4, 3, requires_grad=True)
    assert not is_sharded(weight)
    assert get_local_rows(weight) is weight
    assert gather_weight(weight) is weight
    assert get_first_row(weight) == 0
    assert get_local(weight).data_ptr() == weight.data_ptr()
    assert torch.equal(gather_weight_rows(weight, torch.tensor([2, 0])), weight[[2, 0]])


def seen(group, head, rows, slopes):
    """Return the gathered results of each function and their gradients."""
    head = copy.deepcopy(head).shard(group)
    rank, found = dist.get_rank(group), {}
    whole = gather_weight(head.weight)
    (whole * slopes).sum().backward()  # all processes compute the same
    found["whole"], found["gradient of the whole"] = whole.detach(), head.weight.grad.full_tensor()
    head.weight.grad = None
    chosen = gather_weight_rows(head.weight, rows)
    ((rank + 1) * chosen * slopes[: len(rows)]).sum().backward()  # each process computes its share
    found["chosen"], found["gradient of the chosen"] = chosen.detach(), head.weight.grad.full_tensor()
    found["local"] = gather_rows(get_local_rows(head.weight).detach(), group)
    return {name: value.flatten(0, -2) for name, value in found.items()}


@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("sub_centers", [1, 2])
@pytest.mark.parametrize("classes", [4, 7])
def test_rows_of_all_processes_and_their_gradients(classes, sub_centers, processes, pool):
    head = ArcFace(3, classes, sub_centers=sub_centers, dtype=torch.float64)
    rows, slopes = torch.tensor([5 % classes, 0, classes - 1]), torch.randn_like(head.weight.detach())
    expected = torch.zeros_like(slopes).index_add_(0, rows, slopes[:3] * sum(range(1, processes + 1)))
    for found in pool.run(seen, head, rows, slopes, processes=processes):
        assert torch.equal(found["whole"], head.weight)
        assert torch.equal(found["local"], head.weight)
        assert torch.equal(found["chosen"], head.weight[rows])
        assert torch.equal(found["gradient of the whole"], slopes)
        assert torch.allclose(found["gradient of the chosen"], expected, rtol=1e-14)


def sums(group):
    rank = dist.get_rank(group)
    x = torch.tensor([1.0 + rank], requires_grad=True)
    y = torch.tensor([2.0], requires_grad=True)
    total = sum_shares(x * x, group)  # Σ x_r²
    shares = sum_shares((rank + 1) * as_share(y, group) ** 3, group)  # (Σ r)·y³
    (dx,) = torch.autograd.grad(total, x, create_graph=True)
    (dy,) = torch.autograd.grad(shares, y, create_graph=True)
    return [t.detach() for t in (total, dx, shares, dy, *torch.autograd.grad(dy, y))]


def test_sums_over_processes_can_be_differentiated_twice(pool):
    for rank, found in enumerate(pool.run(sums, processes=2)):
        expected = [1 + 4, 2 * (1 + rank), 3 * 8, 3 * 3 * 4, 3 * 6 * 2]
        assert [t.item() for t in found] == expected


def scattered(group, x, counts, whole):
    """Return this process's rows of the sum over processes. ``whole`` disables Gloo's reduce-scatter."""
    before, collectives.GLOO_HAS_REDUCE_SCATTER = (
        collectives.GLOO_HAS_REDUCE_SCATTER,
        collectives.GLOO_HAS_REDUCE_SCATTER and not whole,
    )
    try:
        return collectives.sum_and_scatter_rows((dist.get_rank(group) + 1) * x, counts, group)
    finally:
        collectives.GLOO_HAS_REDUCE_SCATTER = before


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("counts", [[3, 4], [5, 0], [1, 2, 4]])
def test_sums_of_rows_are_scattered(counts, whole, pool):
    x = torch.randn(sum(counts), 3, dtype=torch.float64)
    parts = pool.run(scattered, x, counts, whole, processes=len(counts))
    assert [len(part) for part in parts] == counts
    assert torch.allclose(torch.cat(parts), x * sum(range(1, len(counts) + 1)), rtol=1e-14)
