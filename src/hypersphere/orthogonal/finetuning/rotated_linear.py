"""A frozen linear layer with block-diagonally rotated inputs, in the fewest products for every number of inputs."""

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

    With blocks of size b, rotating t inputs takes t·n·b products and rotating m neurons takes m·n·b. So the inputs are
    rotated if there are fewer inputs than neurons. Otherwise W Rᵀ is formed once and saved for the backward pass; it is
    never larger than the input, which is saved anyway. The gradient of R then costs one thin product: with the gradient D
    of x it consists of the blocks of (xᵀD)R, because R is orthogonal.
    """
    tokens = x.numel() // max(x.shape[-1], 1)
    if tokens < weight.shape[0] or not x.requires_grad or weight.requires_grad:
        return linear(rotate_blocks(x.reshape(1, -1, x.shape[-1]), r).reshape(x.shape), weight, bias)
    return _RotatedLinear.apply(x, weight, bias, r)  # type: ignore[no-any-return, no-untyped-call]


class _RotatedLinear(torch.autograd.Function):
    """y = x(WRᵀ)ᵀ + b. With the gradient G of y, the gradient of x is D = G(WRᵀ), and that of R the blocks of (xᵀD)R."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, r: Tensor) -> Tensor:
        rotated = rotate_blocks(weight.unsqueeze(0), r.mT)[0]
        ctx.save_for_backward(x, rotated, r)
        return linear(x, rotated, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, Tensor | None, Tensor | None]:
        refuse_second_order()
        x, rotated, r = ctx.saved_tensors
        d_x = gradient @ rotated
        d_r = None
        if ctx.needs_input_grad[3]:
            d_r = multiply_blocks(x.reshape(1, -1, x.shape[-1]), d_x.reshape(1, -1, x.shape[-1]), r) @ r
        d_bias = gradient.flatten(0, -2).sum(0) if ctx.needs_input_grad[2] else None
        return d_x, None, d_bias, d_r
