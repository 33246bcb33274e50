"""A frozen linear layer behind a block-diagonal rotation, in the fewest products for each number of inputs."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import linear

from ..maps.map_precision import refuse_second_order
from .block_rotation import multiply_blocks, rotate_blocks


def apply_rotated_linear(
    x: Float[Tensor, "*batch n"],
    weight: Float[Tensor, "neurons n"],
    bias: Float[Tensor, "neurons"] | None,
    r: Float[Tensor, "1 blocks b b"],
) -> Float[Tensor, "*batch neurons"]:
    """Return x R Wᵀ + b with R = Diag(R₁, …, R_k) orthogonal and W frozen.

    With b numbers in a block, turning t inputs takes t·n·b products and turning m neurons m·n·b, so fewer inputs than
    neurons are turned themselves, forward and backward. Otherwise W Rᵀ is formed once and kept for the backward pass,
    where it is never larger than the input that is kept anyway. The gradient of R costs one thin product: with the
    gradient D of x it is the blocks of (xᵀD)R, because R is orthogonal.
    """
    tokens = x.numel() // max(x.shape[-1], 1)
    if tokens < weight.shape[0] or not x.requires_grad or weight.requires_grad:
        return linear(rotate_blocks(x.reshape(1, -1, x.shape[-1]), r).reshape(x.shape), weight, bias)
    return _RotatedLinear.apply(x, weight, bias, r)  # type: ignore[no-any-return, no-untyped-call]


class _RotatedLinear(torch.autograd.Function):
    """y = x(WRᵀ)ᵀ + b; D = G(WRᵀ) is the gradient of x, the blocks of (xᵀD)R that of R."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, r: Tensor) -> Tensor:
        rotated = rotate_blocks(weight.unsqueeze(0), r.mT)[0]
        ctx.save_for_backward(x, rotated, r)
        return linear(x, rotated, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, Tensor | None, Tensor | None]:
        refuse_second_order()
        x, rotated, r = ctx.saved_tensors
        inputs = gradient @ rotated
        rotation = None
        if ctx.needs_input_grad[3]:
            rotation = multiply_blocks(x.reshape(1, -1, x.shape[-1]), inputs.reshape(1, -1, x.shape[-1]), r) @ r
        bias = gradient.flatten(0, -2).sum(0) if ctx.needs_input_grad[2] else None
        return inputs, None, bias, rotation
