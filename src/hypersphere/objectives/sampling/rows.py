"""Selection of rows of a large weight, with a sparse gradient that contains only these rows."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ...collectives import get_first_row, get_local


def select_rows(weight: Float[Tensor, "..."], positions: Int[Tensor, "m"], per_class: int) -> Float[Tensor, "rows d"]:
    """Select the rows of some classes from the rows that this process holds.

    The gradient of the weight is a sparse tensor with only these rows, for ``torch.optim.SGD`` without momentum,
    :class:`~hypersphere.objectives.RowSGD` or :class:`~hypersphere.objectives.RowAdam`. For a sharded weight, the indices
    of the gradient count the rows of the whole weight.

    Args:
        weight: The weight, whole or sharded.
        positions: Positions of the classes among the classes of this process.
        per_class: K, the number of rows per class.

    >>> w = torch.nn.Parameter(torch.arange(6.0).view(3, 2))
    >>> rows = select_rows(w, torch.tensor([2]), 1)
    >>> rows.sum().backward()
    >>> rows.tolist(), w.grad.coalesce().indices().tolist()
    ([[4.0, 5.0]], [[2]])
    """
    index = positions
    if per_class > 1 and weight.ndim == 2:
        index = (positions.unsqueeze(-1) * per_class + torch.arange(per_class, device=positions.device)).flatten()
    rows: Tensor = _SelectRows.apply(weight, index)
    return rows.flatten(0, -2)


class _SelectRows(torch.autograd.Function):
    """weight[index] with a sparse gradient. Index operations of autograd would allocate a gradient of the weight's size."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index + get_first_row(weight))
        ctx.shape = weight.shape
        return get_local(weight)[index]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        index = index.unsqueeze(0)
        return torch.sparse_coo_tensor(index, gradient, ctx.shape, is_coalesced=True, check_invariants=False), None
