"""Some rows of a large weight, whose gradient is as large as they are and no larger."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ...collectives import get_first_row, get_local


def select_rows(weight: Float[Tensor, "..."], places: Int[Tensor, "m"], per_class: int) -> Float[Tensor, "rows d"]:
    """Select the rows of these classes from those that this process holds, K per class.

    The gradient of the weight is a sparse tensor with these rows alone, which ``torch.optim.SGD`` without momentum,
    :class:`~hypersphere.objectives.RowSGD` and :class:`~hypersphere.objectives.RowAdam` take. That of a weight in shards
    has the rows' numbers in the whole weight.

    >>> w = torch.nn.Parameter(torch.arange(6.0).view(3, 2))
    >>> rows = select_rows(w, torch.tensor([2]), 1)
    >>> rows.sum().backward()
    >>> rows.tolist(), w.grad.coalesce().indices().tolist()
    ([[4.0, 5.0]], [[2]])
    """
    index = places
    if per_class > 1 and weight.ndim == 2:
        index = (places.unsqueeze(-1) * per_class + torch.arange(per_class, device=places.device)).flatten()
    rows: Tensor = _Drawn.apply(weight, index)
    return rows.flatten(0, -2)


class _Drawn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index + get_first_row(weight))
        ctx.shape = weight.shape
        return get_local(weight)[index]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        places = index.unsqueeze(0)
        return torch.sparse_coo_tensor(places, gradient, ctx.shape, is_coalesced=True, check_invariants=False), None
