"""Validation and precision of all maps, and the treatment of singular matrices."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from ...geometry import accumulation_dtype, disable_autocast

Function = TypeVar("Function", bound=Callable[..., Tensor])


def upcast_squares(function: Function) -> Function:
    """Decorate a map: check that x is square, compute in float32 or better without autocast, and return the dtype of x."""

    @functools.wraps(function)
    def wrapper(x: Tensor, *args: Any, **options: Any) -> Tensor:
        if not x.is_floating_point() or x.ndim < 2 or x.shape[-1] != x.shape[-2] or x.shape[-1] == 0:
            raise ValueError(
                f"x must be a floating-point tensor of square matrices (…, n, n), got {x.dtype} of shape {tuple(x.shape)}"
            )
        with disable_autocast(x.device.type):
            return function(x.to(accumulation_dtype(x)), *args, **options).to(x.dtype)

    return wrapper  # type: ignore[return-value]


def refuse_second_order() -> None:
    """Raise a RuntimeError if a hand-written backward pass is differentiated, because the result would silently be zero."""
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise RuntimeError(
            "this map has a hand-written gradient that cannot be differentiated again (create_graph=True)"
        )


def get_skew_part(x: Tensor) -> Tensor:
    """Return the skew-symmetric part (X − Xᵀ)/2."""
    return (x - x.mT) / 2


def describe_non_finite(x: Tensor) -> str:
    """Count the NaN and infinite entries of a tensor, for an error message."""
    return f"{int(x.isnan().sum())} NaN and {int(x.isinf().sum())} infinite of {x.numel()} entries"


def find_missing(lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return which lengths ``(…, n)`` are zero up to rounding, and their substitute: the largest length, or 1 if all are 0.

    At a matrix with linearly dependent columns the maps are not differentiable. They add directions to complete the basis
    and differentiate as if each added direction had the largest length. The gradient is then finite, and training moves
    away from such matrices.
    """
    longest = lengths.amax(-1, keepdim=True)
    rounding = 4 * lengths.shape[-1] * torch.finfo(lengths.dtype).eps
    # below 1e-20, a gradient of 1/length would leave the range of float32
    return lengths <= (rounding * longest).clamp_min(1e-20), torch.where(longest > 1e-20, longest, 1)
