"""A batch that is spread over processes, as one: rows gathered and sums added up, with exact gradients.

Every process computes the loss of the whole batch. The gradient that arrives at a process's own rows is that of the
sum of all processes' (equal) losses, which is the number of processes times the gradient of the one loss. Averaging
over the processes, as ``DistributedDataParallel`` does with parameters, therefore gives exactly the gradient of one
process.
"""

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from jaxtyping import Float, Int, Shaped
from torch import Tensor


class Gathered(NamedTuple):
    """Rows of all processes in the order of their ranks, and the index of this process's first row."""

    rows: Shaped[Tensor, "all *d"]
    start: int


def is_spread() -> bool:
    """Whether torch.distributed runs with more than one process."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def gather_rows(x: Shaped[Tensor, "n *d"]) -> Gathered:
    """The rows of all processes, as many as each has; gradients flow back to where the rows came from."""
    counts = _counts(len(x), x.device)
    start = sum(counts[: dist.get_rank()])
    return Gathered(_Gather.apply(x, counts, start) if x.is_floating_point() else _gather(x, counts), start)


def sum_over_processes(x: Float[Tensor, "*k"]) -> Float[Tensor, "*k"]:
    """The sum of every process's ``x``; the gradients that arrive at the sums are added up as well."""
    return _Sum.apply(x)


def own_share(rows: Shaped[Tensor, "n *d"]) -> Shaped[Tensor, "part *d"]:
    """Every k-th row of what all k processes hold alike: this process's part of the work."""
    return rows[dist.get_rank() :: dist.get_world_size()]


def _counts(n: int, device: torch.device) -> list[int]:
    """How many rows each process has."""
    counts: Int[Tensor, "processes"] = torch.zeros(dist.get_world_size(), dtype=torch.long, device=device)
    counts[dist.get_rank()] = n
    dist.all_reduce(counts)
    return counts.tolist()


def _gather(x: Tensor, counts: list[int]) -> Tensor:
    """Rows are filled up to the largest number, since collectives want equal shapes, and cut again."""
    longest = max(counts)
    padded = x.new_zeros(longest, *x.shape[1:])
    padded[: len(x)] = x
    parts = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(parts, padded)
    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, counts: list[int], start: int) -> Tensor:
        ctx.rows = slice(start, start + len(x))
        return _gather(x, counts)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        grad = grad.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(grad)
        return grad[ctx.rows], None, None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        total = grad.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total
