r"""The norm of the patch that a filter sees: Σ_c x² per group, then a box filter with the convolution's geometry."""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ..geometry.units import MIN_NORM

Convolution: TypeAlias = "nn.Conv1d | nn.Conv2d | nn.Conv3d"
_AVERAGE: tuple[Callable[..., Tensor], ...] = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)
_CONVOLVE: tuple[Callable[..., Tensor], ...] = (F.conv1d, F.conv2d, F.conv3d)


def squares(x: Float[Tensor, "..."], dim: int, groups: int = 1) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
    r"""Σ x² over ``dim`` in each of ``groups`` equal parts of it, in float32 or better, and ``x`` itself.

    Use the returned ``x`` for the inner product: then the two gradients of ``x`` are added in one pass.

    >>> squares(torch.tensor([[1.0, 2.0, 3.0, 4.0]]), -1, groups=2)[0]
    tensor([[ 5., 25.]])
    """
    return _Squares.apply(x, dim, groups)


def patch_squares(sums: Float[Tensor, "..."], layer: Convolution) -> Float[Tensor, "..."]:
    r"""‖patch‖² at every position of the layer's output, from the Σ_c x² of its groups: ``(…, g, *in) → (…, g, *out)``.

    Padding by any mode commutes with squaring, so it is done on the sums; zeros count as zeros.

    >>> patch_squares(torch.ones(1, 1, 4, 4), torch.nn.Conv2d(5, 7, 3, padding=1))[0, 0]
    tensor([[4., 6., 6., 4.],
            [6., 9., 9., 6.],
            [6., 9., 9., 6.],
            [4., 6., 6., 4.]])
    """
    size, axes = layer.kernel_size, len(layer.kernel_size)
    around = layer._reversed_padding_repeated_twice
    if any(around):
        sums = F.pad(sums, around, mode="constant" if layer.padding_mode == "zeros" else layer.padding_mode)
    if all(d == 1 for d in layer.dilation):
        return _AVERAGE[axes - 1](sums, size, layer.stride) * math.prod(size)
    groups = sums.shape[-1 - axes]
    box = sums.new_ones(groups, 1, *size)
    return _CONVOLVE[axes - 1](sums, box, stride=layer.stride, dilation=layer.dilation, groups=groups).clamp_min(0)


def root(square: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    r"""‖x‖ from ‖x‖², with a bounded slope: below ``MIN_NORM`` it is ‖x‖²/``MIN_NORM``, 0 at 0 with gradient 0.

    >>> root(torch.tensor([4.0, 0.0]))
    tensor([2., 0.])
    """
    return square * square.clamp_min(MIN_NORM**2).rsqrt()


class _Squares(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, dim: int, groups: int) -> tuple[Tensor, Tensor]:
        grouped = _grouped(x, dim, groups)
        return grouped.to(torch.promote_types(x.dtype, torch.float32)).square().sum(dim), x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int, int], output: tuple[Tensor, Tensor]) -> None:
        x, ctx.dim, ctx.groups = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, grad_sums: Tensor, grad_x: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        dim, dtype = ctx.dim, grad_sums.dtype
        through, saw = (_grouped(t, dim, ctx.groups).to(dtype) for t in (grad_x, x))
        return (
            torch.addcmul(through, saw, grad_sums.unsqueeze(dim), value=2).to(x.dtype).flatten(dim - 1, dim),
            None,
            None,
        )


def _grouped(x: Tensor, dim: int, groups: int) -> Tensor:
    """``(…, c, *rest) → (…, groups, c/groups, *rest)``; ``dim`` counts from the end and means the new second axis."""
    return x.unflatten(dim, (groups, -1))
