"""A frozen linear layer behind a block-diagonal rotation, in the fewest products for each number of inputs."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import linear

from ..maps.map_precision import refuse_second_order
from .block_turn import block_products, turn_blocks


def turned_linear(
    x: Float[Tensor, "*batch n"],
    weight: Float[Tensor, "neurons n"],
    bias: Float[Tensor, "neurons"] | None,
    r: Float[Tensor, "1 blocks b b"],
) -> Float[Tensor, "*batch neurons"]:
    """x R Wᵀ + b with R = Diag(R₁, …, R_k) orthogonal and W frozen.

    Fewer inputs than neurons are turned themselves. Otherwise W Rᵀ is formed, in the backward pass once more rather
    than kept, and the gradient of R costs one thin product and no turning: with the gradient D of x it is the blocks
    of (xᵀD)R, because R is orthogonal.
    """
    tokens = x.numel() // max(x.shape[-1], 1)
    if tokens < weight.shape[0] or not x.requires_grad or weight.requires_grad:
        return linear(turn_blocks(x.reshape(1, -1, x.shape[-1]), r).reshape(x.shape), weight, bias)
    return _TurnedLinear.apply(x, weight, bias, r)  # type: ignore[no-any-return, no-untyped-call]


class _TurnedLinear(torch.autograd.Function):
    """y = x(WRᵀ)ᵀ + b; D = G(WRᵀ) is the gradient of x, the blocks of (xᵀD)R that of R."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, r: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight, r)
        return linear(x, _rotated(weight, r), bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, Tensor | None, Tensor | None]:
        refuse_second_order()
        x, weight, r = ctx.saved_tensors
        inputs = gradient @ _rotated(weight, r)
        rotation = None
        if ctx.needs_input_grad[3]:
            rotation = block_products(x.reshape(1, -1, x.shape[-1]), inputs.reshape(1, -1, x.shape[-1]), r) @ r
        bias = gradient.flatten(0, -2).sum(0) if ctx.needs_input_grad[2] else None
        return inputs, None, bias, rotation


def _rotated(weight: Tensor, r: Tensor) -> Tensor:
    return turn_blocks(weight.unsqueeze(0), r.mT)[0]
