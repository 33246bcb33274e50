"""A matrix product that a compiler keeps as one operation. A compiler would otherwise use MKL."""

from typing import Any

import torch
from torch import Tensor

from .products import matmul


@torch.library.custom_op("hypersphere::matmul", mutates_args=())
def multiply(a: Tensor, b: Tensor) -> Tensor:
    """Return the product ``a @ b`` as one operation that a compiler does not change.

    >>> multiply(torch.eye(2), torch.ones(2, 1)).flatten()
    tensor([1., 1.])
    """
    return matmul(a, b)


@multiply.register_fake
def _(a: Tensor, b: Tensor) -> Tensor:
    return a.new_empty(a.shape[0], b.shape[1])


def _save_factors(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _multiply_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
    a, b = ctx.saved_tensors
    needs = ctx.needs_input_grad
    return multiply(grad, b.T) if needs[0] else None, multiply(a.T, grad) if needs[1] else None


multiply.register_autograd(_multiply_backward, setup_context=_save_factors)
