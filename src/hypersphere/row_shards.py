"""Tensors whose rows are divided among processes (DTensors with ``Shard(0)``), and sums over processes with gradients.

What all processes compute alike is *replicated*: it has the same value and the same gradient on each of them. What comes
of a process's own rows is its *share*: values and gradients that have to be added up.
"""

import sys
from typing import Any, TypeGuard

import torch
import torch.distributed as dist
from jaxtyping import Float, Shaped
from torch import Tensor


def is_sharded(tensor: object) -> TypeGuard[Any]:
    """Whether a tensor is a DTensor; they are a second's worth of imports, so nobody imports them who has none.

    >>> is_sharded(torch.ones(3, 2))
    False
    """
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local_of(tensor: Tensor) -> Tensor:
    """What this process holds of a tensor, without a gradient: the memory itself.

    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> _ = local_of(weight).add_(1)
    >>> weight.tolist()
    [1.0, 1.0]
    """
    return (tensor._local_tensor if is_sharded(tensor) else tensor).detach()


def local_rows(weight: Tensor) -> Float[Tensor, "rows d"]:
    """The rows that this process holds, with their gradient; a plain weight is its own.

    A weight (C, K, d), with K rows for each class, has row c·K + k for centre k of class c.

    >>> weight = torch.nn.Parameter(torch.ones(4, 3))
    >>> local_rows(weight) is weight
    True

    Of a head with 5 classes on two processes, the second holds the last two rows:

    >>> local_rows(hs.ArcFace(3, 5).shard().weight).shape  # doctest: +SKIP
    torch.Size([2, 3])
    """
    if not is_sharded(weight):
        return weight
    local = weight.to_local()
    return local.flatten(0, 1) if local.ndim == 3 else local


def first_row(tensor: Tensor) -> int:
    """The number of the first entry of the first dimension that this process holds: a row, or a class of (C, K, d).

    >>> first_row(torch.ones(4, 3))
    0

    Of a head with 5 classes on two processes, the second holds those from number 3 on:

    >>> first_row(hs.ArcFace(3, 5).shard().weight)  # doctest: +SKIP
    3
    """
    if not is_sharded(tensor):
        return 0
    each = -(-len(tensor) // tensor.device_mesh.size())
    return min(each * tensor.device_mesh.get_local_rank(), len(tensor))


def whole_rows(weight: Tensor) -> Float[Tensor, "rows *d"]:
    """All rows on every process, for what all of them compute alike: each keeps the gradient of its own rows.

    Every process must call it. A plain weight is returned as it is.

    >>> weight = torch.nn.Parameter(torch.ones(4, 3))
    >>> whole_rows(weight) is weight
    True
    >>> whole_rows(hs.ArcFace(3, 5).shard().weight).shape  # on any number of processes  # doctest: +SKIP
    torch.Size([5, 3])
    """
    if not is_sharded(weight):
        return weight
    from torch.distributed.tensor import Replicate

    rows: Tensor = weight.full_tensor(grad_placements=[Replicate()])
    return rows.flatten(0, 1) if rows.ndim == 3 else rows


def chosen_rows(weight: Tensor, rows: Shaped[Tensor, "m"]) -> Float[Tensor, "m d"]:
    """The rows of these numbers on every process, for use in shares: gradients are added up and go to who holds the row.

    Every process must call it with the same numbers; what travels is m·d numbers, forward and backward.

    >>> chosen_rows(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), torch.tensor([2, 0]))
    tensor([[5., 6.],
            [1., 2.]])
    """
    local = local_rows(weight)
    if not is_sharded(weight):
        return local[rows]
    per_entry = weight.shape[1] if weight.ndim == 3 else 1
    group, place = weight.device_mesh.get_group(), rows - first_row(weight) * per_entry
    here = (place >= 0) & (place < len(local))
    if len(local):
        found = torch.where(here.unsqueeze(-1), local[place.clamp(0, len(local) - 1)], 0.0)
    else:  # 0 that hangs on the weight, so that this process takes part in the backward pass
        found = local.sum().expand(len(rows), local.shape[1])
    return entered(added(found, group), group)


def added(share: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Σ over the processes, replicated; a replicated gradient comes back as it is.

    Every process must call it. On two processes, whose shares are 1 and 2:

    >>> share = torch.tensor([1.0 + torch.distributed.get_rank()])  # doctest: +SKIP
    >>> added(share, torch.distributed.group.WORLD)  # doctest: +SKIP
    tensor([3.])
    """
    return _Add.apply(share, group)


def entered(replicated: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The same tensor for use in a share: gradients are added up on their way back.

    Every process must take part in the backward pass. On two processes, whose shares are x and 2x, the gradient of
    their sum is 3 on both:

    >>> x, group = torch.ones(1, requires_grad=True), torch.distributed.group.WORLD  # doctest: +SKIP
    >>> added((1 + torch.distributed.get_rank()) * entered(x, group), group).backward()  # doctest: +SKIP
    >>> x.grad  # doctest: +SKIP
    tensor([3.])
    """
    return _Enter.apply(replicated, group)


@torch.no_grad()
def rows_together(x: Shaped[Tensor, "_n *d"], group: dist.ProcessGroup) -> Shaped[Tensor, "n *d"]:
    """The rows of all processes in the order of their ranks, as many as each has, without a gradient.

    Every process must call it. On two processes, of which the first has one row and the second two:

    >>> rank = torch.distributed.get_rank()  # doctest: +SKIP
    >>> rows_together(torch.full((rank + 1, 2), rank), torch.distributed.group.WORLD)  # doctest: +SKIP
    tensor([[0, 0],
            [1, 1],
            [1, 1]])
    """
    counts = torch.zeros(dist.get_world_size(group), dtype=torch.int64, device=x.device)
    counts[dist.get_rank(group)] = len(x)
    dist.all_reduce(counts, group=group)
    lengths = counts.tolist()
    padded = torch.cat([x, x.new_zeros(max(lengths) - len(x), *x.shape[1:])])
    parts = [torch.empty_like(padded) for _ in lengths]
    dist.all_gather(parts, padded, group=group)
    return torch.cat([part[:n] for part, n in zip(parts, lengths, strict=True)])


class _Add(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, share: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        total = share.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return entered(gradient, ctx.group), None


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, replicated: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return replicated.view_as(replicated)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return added(gradient, ctx.group), None
