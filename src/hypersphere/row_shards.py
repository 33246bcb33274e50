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
    """What this process holds of a tensor, without a gradient: the memory itself."""
    return (tensor._local_tensor if is_sharded(tensor) else tensor).detach()


def local_rows(weight: Tensor) -> Float[Tensor, "rows d"]:
    """The rows that this process holds, with their gradient; a plain weight is its own.

    A weight (C, K, d), with K rows for each class, has row c·K + k for centre k of class c.
    """
    if not is_sharded(weight):
        return weight
    local = weight.to_local()
    return local.flatten(0, 1) if local.ndim == 3 else local


def first_row(tensor: Tensor) -> int:
    """The number of the first entry of the first dimension that this process holds: a row, or a class of (C, K, d)."""
    if not is_sharded(tensor):
        return 0
    each = -(-len(tensor) // tensor.device_mesh.size())
    return min(each * tensor.device_mesh.get_local_rank(), len(tensor))


def whole_rows(weight: Tensor) -> Float[Tensor, "rows *d"]:
    """All rows on every process, for what all of them compute alike: each keeps the gradient of its own rows.

    Every process must call it. A plain weight is returned as it is.
    """
    if not is_sharded(weight):
        return weight
    from torch.distributed.tensor import Replicate

    rows: Tensor = weight.full_tensor(grad_placements=[Replicate()])
    return rows.flatten(0, 1) if rows.ndim == 3 else rows


def chosen_rows(weight: Tensor, rows: Shaped[Tensor, "m"]) -> Float[Tensor, "m d"]:
    """The rows of these numbers on every process, for use in shares: gradients are added up and go to who holds the row.

    Every process must call it with the same numbers; what travels is m·d numbers, forward and backward.
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
    """Σ over the processes, replicated; a replicated gradient comes back as it is."""
    return _Add.apply(share, group)


def entered(replicated: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The same tensor for use in a share: gradients are added up on their way back."""
    return _Enter.apply(replicated, group)


@torch.no_grad()
def rows_together(x: Shaped[Tensor, "_n *d"], group: dist.ProcessGroup) -> Shaped[Tensor, "n *d"]:
    """The rows of all processes in the order of their ranks, as many as each has, without a gradient."""
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
