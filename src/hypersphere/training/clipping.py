"""Gradients cut off at a length: of all parameters together, whole, sparse or divided among processes."""

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor

from ..row_shards import is_sharded, local_of


@torch.no_grad()
def clip_gradients(parameters: Iterable[Tensor], limit: float) -> Tensor:
    """Multiply all gradients by min(1, limit/‖g‖), where ‖g‖ is the length of all of them as one vector; returns ‖g‖.

    It is ``torch.nn.utils.clip_grad_norm_`` where that can be used. Rows of a weight that is divided among processes
    count once, on whichever process they are: what travels is one number for each group of processes. The gradients of
    drawn rows, which are sparse, are taken as they are.

    >>> w = torch.nn.Parameter(torch.zeros(2))
    >>> w.grad = torch.tensor([3.0, 4.0])
    >>> clip_gradients([w], 1.0), w.grad
    (tensor(5.), tensor([0.6000, 0.8000]))
    """
    norms: list[Tensor] = []
    divided: dict[dist.ProcessGroup, list[Tensor]] = {}
    found = [_numbers(parameter) for parameter in parameters if parameter.grad is not None]
    for numbers, group in found:
        norm = torch.linalg.vector_norm(numbers, dtype=torch.promote_types(numbers.dtype, torch.float32))
        norms.append(norm) if group is None else divided.setdefault(group, []).append(norm)
    for group, shares in divided.items():
        squares = torch.stack(shares).square().sum()
        dist.all_reduce(squares, group=group)
        norms.append(squares.sqrt())
    if not norms:
        return torch.tensor(0.0)
    total = torch.linalg.vector_norm(torch.stack([norm.to(norms[0].device) for norm in norms]))
    factor = (limit / (total + 1e-6)).clamp_max(1.0)
    for numbers, _ in found:
        numbers.mul_(factor.to(numbers.device, numbers.dtype))
    return total


def _numbers(parameter: Tensor) -> tuple[Tensor, dist.ProcessGroup | None]:
    """The numbers of a gradient that this process holds, to be changed in place, and who holds the others."""
    gradient = parameter.grad
    assert gradient is not None
    group = parameter.device_mesh.get_group() if is_sharded(parameter) else None
    if gradient.layout == torch.sparse_coo:  # the rows that were drawn; a row that occurs twice must be added up first
        parameter.grad = gradient = gradient.coalesce()
        return gradient._values(), group
    return local_of(gradient), group
