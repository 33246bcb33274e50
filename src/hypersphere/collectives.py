"""Communication between processes: gathering rows and computing sums with exact gradients, and weights divided by rows.

Two terms describe a tensor in a distributed computation. A *replicated* tensor has the same value and the same gradient on
all processes. A *share* is computed by one process from its own rows: the values and gradients of all processes must be summed.
:func:`sum_shares` converts shares to a replicated tensor, and :func:`as_share` converts a replicated tensor for use in a share.
A weight divided by rows is a DTensor with ``Shard(0)``.

Every function here that communicates must be called by all processes of the group. ``group=None`` means all processes.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeGuard, TypeVar

import torch
import torch.distributed as dist
from jaxtyping import Float, Shaped
from torch import Tensor

T = TypeVar("T")
# Before PyTorch 2.8, gloo has no reduce_scatter, so every process computes the whole sum.
GLOO_HAS_REDUCE_SCATTER = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 8)


class GatheredRows(NamedTuple):
    """The rows of all processes in the order of their ranks, and the index of this process's first row.

    >>> GatheredRows(torch.tensor([3, 4, 5]), start=1).start
    1
    """

    rows: Shaped[Tensor, "all *d"]
    start: int


def is_distributed(group: dist.ProcessGroup | None = None) -> bool:
    """Return whether torch.distributed runs with more than one process.

    >>> is_distributed()
    False
    """
    return dist.is_available() and dist.is_initialized() and dist.get_world_size(group) > 1


def is_sharded(tensor: object) -> TypeGuard[Any]:
    """Return whether a tensor is a DTensor, without importing DTensor, which takes a second.

    >>> is_sharded(torch.ones(3, 2))
    False
    """
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def get_local(tensor: Tensor) -> Tensor:
    """Return the memory that this process holds of a tensor, without a gradient.

    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> _ = get_local(weight).add_(1)
    >>> weight.tolist()
    [1.0, 1.0]
    """
    return (tensor._local_tensor if is_sharded(tensor) else tensor).detach()


def get_local_rows(weight: Tensor) -> Float[Tensor, "rows d"]:
    """Return the rows that this process holds, with their gradient. A plain weight is returned unchanged.

    A weight (C, K, d) with K rows per class has row c·K + k for center k of class c.

    >>> weight = torch.nn.Parameter(torch.ones(4, 3))
    >>> get_local_rows(weight) is weight
    True

    With a head with 5 classes on two processes, the second process holds the last two rows:

    >>> get_local_rows(hs.ArcFace(3, 5).shard().weight).shape  # doctest: +SKIP
    torch.Size([2, 3])
    """
    if not is_sharded(weight):
        return weight
    local = weight.to_local()
    return local.flatten(0, 1) if local.ndim == 3 else local


def get_first_row(tensor: Tensor) -> int:
    """Return the first index of the first dimension that this process holds: a row, or a class of (C, K, d).

    >>> get_first_row(torch.ones(4, 3))
    0

    With a head with 5 classes on two processes, the second process holds the classes from index 3:

    >>> get_first_row(hs.ArcFace(3, 5).shard().weight)  # doctest: +SKIP
    3
    """
    if not is_sharded(tensor):
        return 0
    rows_per_process = -(-len(tensor) // tensor.device_mesh.size())
    return min(rows_per_process * tensor.device_mesh.get_local_rank(), len(tensor))


def gather_weight(weight: Tensor) -> Float[Tensor, "rows *d"]:
    """Return all rows of a weight on every process, for a replicated computation.

    Each process gets the gradient of its own rows. A plain weight is returned unchanged.

    >>> weight = torch.nn.Parameter(torch.ones(4, 3))
    >>> gather_weight(weight) is weight
    True
    >>> gather_weight(hs.ArcFace(3, 5).shard().weight).shape  # on any number of processes  # doctest: +SKIP
    torch.Size([5, 3])
    """
    if not is_sharded(weight):
        return weight
    from torch.distributed.tensor import Replicate

    rows: Tensor = weight.full_tensor(grad_placements=[Replicate()])
    return rows.flatten(0, 1) if rows.ndim == 3 else rows


def gather_weight_rows(weight: Tensor, rows: Shaped[Tensor, "m"]) -> Float[Tensor, "m d"]:
    """Return the rows with these indices on every process, for use in shares.

    All processes pass the same indices. The backward pass sums the gradients on the process that holds the row. m·d numbers are
    communicated in the forward and in the backward pass.

    >>> gather_weight_rows(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), torch.tensor([2, 0]))
    tensor([[5., 6.],
            [1., 2.]])
    """
    local = get_local_rows(weight)
    if not is_sharded(weight):
        return local[rows]
    per_entry = weight.shape[1] if weight.ndim == 3 else 1
    group, position = weight.device_mesh.get_group(), rows - get_first_row(weight) * per_entry
    is_local = (position >= 0) & (position < len(local))
    if len(local):
        share = torch.where(is_local.unsqueeze(-1), local[position.clamp(0, len(local) - 1)], 0.0)
    else:  # zeros that depend on the weight, so that this process takes part in the backward pass
        share = local.sum().expand(len(rows), local.shape[1])
    return as_share(sum_shares(share, group), group)


def sum_shares(share: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """Sum the shares of all processes into a replicated tensor. Each share gets the gradient of the sum.

    On two processes with the shares 1 and 2:

    >>> share = torch.tensor([1.0 + torch.distributed.get_rank()])  # doctest: +SKIP
    >>> sum_shares(share)  # doctest: +SKIP
    tensor([3.])
    """
    return _SumShares.apply(share, group)


def as_share(replicated: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """Return a replicated tensor for use in a share: the backward pass sums the gradients of all processes.

    On two processes with the shares x and 2x, the gradient of their sum is 3 on both:

    >>> x = torch.ones(1, requires_grad=True)  # doctest: +SKIP
    >>> sum_shares((1 + torch.distributed.get_rank()) * as_share(x)).backward()  # doctest: +SKIP
    >>> x.grad  # doctest: +SKIP
    tensor([3.])
    """
    return _AsShare.apply(replicated, group)


def sum_over_processes(x: Float[Tensor, "*k"], group: dist.ProcessGroup | None = None) -> Float[Tensor, "*k"]:
    """Sum a tensor over the processes. The gradient is that of the sum of the losses of all processes, which are equal.

    It is the gradient of one loss times the number of processes, so its average over the processes, which
    ``DistributedDataParallel`` computes for parameters, is exactly the gradient of one loss.

    >>> sum_over_processes(torch.ones(2))  # on two processes  # doctest: +SKIP
    tensor([2., 2.])
    """
    return sum_shares(as_share(x, group), group)


def select_own_rows(rows: Shaped[Tensor, "n *d"]) -> Shaped[Tensor, "part *d"]:
    """Return this process's part of the rows that all k processes hold: every k-th row.

    >>> select_own_rows(torch.arange(5))  # on the first of two processes  # doctest: +SKIP
    tensor([0, 2, 4])
    """
    return rows[dist.get_rank() :: dist.get_world_size()]


@torch.no_grad()
def gather_rows(
    x: Shaped[Tensor, "_n *d"], group: dist.ProcessGroup | None = None, counts: Sequence[int] | None = None
) -> Shaped[Tensor, "n *d"]:
    """Return the rows of all processes in the order of their ranks, without a gradient.

    Processes may have different numbers of rows, or none. Collectives need equal shapes, so the rows are padded to the largest
    number, and the padding is removed afterwards.

    Args:
        x: This process's rows.
        group: The processes.
        counts: Number of rows of each process, if known; otherwise they are communicated first.

    Returns:
        All rows; ``x`` itself if there is one process.

    >>> gather_rows(torch.ones(1, 2))
    tensor([[1., 1.]])

    On two processes, the first with one row and the second with two:

    >>> rank = torch.distributed.get_rank()  # doctest: +SKIP
    >>> gather_rows(torch.full((rank + 1, 2), rank))  # doctest: +SKIP
    tensor([[0, 0],
            [1, 1],
            [1, 1]])
    """
    if not is_distributed(group):
        return x
    counts = count_rows(x, group) if counts is None else counts
    missing = max(counts) - len(x)
    padded = torch.cat([x, x.new_zeros(missing, *x.shape[1:])]) if missing else x
    return torch.cat([part[:n] for part, n in zip(gather_parts(padded, group), counts, strict=True)])


def gather_rows_with_gradient(x: Shaped[Tensor, "n *d"]) -> GatheredRows:
    """Return the rows of all processes. The backward pass sums the gradients on the process that a row came from.

    Its size is explained in :func:`sum_over_processes`.

    >>> gather_rows_with_gradient(torch.ones(2, 3)).rows.shape  # on two processes  # doctest: +SKIP
    torch.Size([4, 3])
    """
    counts = count_rows(x)
    start = sum(counts[: dist.get_rank()])
    return GatheredRows(
        _GatherRows.apply(x, counts, start) if x.is_floating_point() else gather_rows(x, None, counts), start
    )


def gather_parts(x: Tensor, group: dist.ProcessGroup | None = None) -> list[Tensor]:
    """Return the tensors of all processes, which have the same shape and dtype, as a list in the order of the ranks.

    >>> gather_parts(torch.tensor([torch.distributed.get_rank()]))  # on two processes  # doctest: +SKIP
    [tensor([0]), tensor([1])]
    """
    parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, x.contiguous(), group=group)
    return parts


def count_rows(x: Tensor, group: dist.ProcessGroup | None = None) -> list[int]:
    """Return the number of rows of each process, in the order of the ranks.

    >>> count_rows(torch.ones(4 + torch.distributed.get_rank(), 2))  # on two processes  # doctest: +SKIP
    [4, 5]
    """
    counts = torch.zeros(dist.get_world_size(group), dtype=torch.int64, device=x.device)
    counts[dist.get_rank(group)] = len(x)
    dist.all_reduce(counts, group=group)
    return counts.tolist()


def sum_and_scatter_rows(
    x: Float[Tensor, "n *d"], counts: Sequence[int], group: dist.ProcessGroup | None = None
) -> Float[Tensor, "_n *d"]:
    """Sum a tensor with the rows of all processes over the processes, and return this process's rows of the sum.

    ``counts`` is the number of rows of each process.

    >>> sum_and_scatter_rows(torch.ones(3, 2), [1, 2])  # on the first of two processes  # doctest: +SKIP
    tensor([[2., 2.]])
    """
    longest = max(counts)
    parts = [
        torch.cat([p, p.new_zeros(longest - len(p), *p.shape[1:])]) if len(p) < longest else p.contiguous()
        for p in x.split(list(counts))
    ]
    rank = dist.get_rank(group)
    if dist.get_backend(group) == "gloo" and not GLOO_HAS_REDUCE_SCATTER:
        sums = torch.stack(parts)
        dist.all_reduce(sums, group=group)
        return sums[rank, : counts[rank]]
    total = torch.empty_like(parts[0])
    dist.reduce_scatter(total, parts, group=group)
    return total[: counts[rank]]


def gather_results(compute: Callable[[], T], group: dist.ProcessGroup | None = None) -> list[T]:
    """Return the results of ``compute()`` on all processes, in the order of the ranks.

    If it raises a ``ValueError`` or an ``OSError`` on one process, all processes raise it, so that none waits forever.
    Without a process group there is one result.

    >>> gather_results(lambda: 3)
    [3]
    """
    if not is_distributed(group):
        return [compute()]
    result: T | Exception
    try:
        result = compute()
    except (ValueError, OSError) as error:
        result = error
    results: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(results, result, group=group)
    for value in results:
        if isinstance(value, Exception):
            raise value
    return results


class _SumShares(torch.autograd.Function):
    """Forward: the sum over processes. Backward: the identity, written as :func:`as_share` for second derivatives."""

    @staticmethod
    def forward(ctx: Any, share: Tensor, group: dist.ProcessGroup | None) -> Tensor:
        ctx.group = group
        total = share.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return as_share(gradient, ctx.group), None


class _AsShare(torch.autograd.Function):
    """Forward: the identity. Backward: the sum over processes. It is the transpose of :class:`_SumShares`."""

    @staticmethod
    def forward(ctx: Any, replicated: Tensor, group: dist.ProcessGroup | None) -> Tensor:
        ctx.group = group
        return replicated.view_as(replicated)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return sum_shares(gradient, ctx.group), None


class _GatherRows(torch.autograd.Function):
    """Forward: the rows of all processes. Backward: the sum of all gradients, restricted to this process's rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, counts: list[int], start: int) -> Tensor:
        ctx.rows = slice(start, start + len(x))
        return gather_rows(x, None, counts)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        total = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total[ctx.rows], None, None
