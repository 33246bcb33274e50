"""Precision of all maps: float32 or better inside, and a rule for the missing directions of a singular matrix."""

import contextlib
import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import torch
from torch import Tensor

Function = TypeVar("Function", bound=Callable[..., Tensor])


def disable_autocast(function: Function) -> Function:
    """Check that the first argument is square, compute in float32 or better outside autocast, return the caller's dtype."""

    @functools.wraps(function)
    def wrapper(x: Tensor, *args: Any, **options: Any) -> Tensor:
        if not x.is_floating_point() or x.ndim < 2 or x.shape[-1] != x.shape[-2] or x.shape[-1] == 0:
            raise ValueError(
                f"x must be a floating-point tensor of square matrices (…, n, n), got {x.dtype} of shape {tuple(x.shape)}"
            )
        wide = x.dtype is torch.float32 or x.dtype is torch.float64
        if wide and not torch.is_autocast_enabled(x.device.type):  # a context costs as much as a small operation
            return function(x, *args, **options)
        with without_autocast(x):
            return function(x if wide else x.to(upcast(x.dtype)), *args, **options).to(x.dtype)

    return wrapper  # type: ignore[return-value]


def without_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """Return a context in which products keep the precision of their factors; without autocast it does nothing."""
    device = x.device.type
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else contextlib.nullcontext()


def refuse_second_order() -> None:
    """Raise if a hand-written backward pass is differentiated itself: the second derivative would silently be zero."""
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise RuntimeError(
            "this map has a hand-written gradient that cannot be differentiated again (create_graph=True)"
        )


def upcast(*dtypes: torch.dtype) -> torch.dtype:
    """Return the widest of the dtypes, float32 at least."""
    return functools.reduce(torch.promote_types, dtypes, torch.float32)


def skew(x: Tensor) -> Tensor:
    """Return (X − Xᵀ)/2, the skew-symmetric part; a skew-symmetric matrix is its own."""
    return (x - x.mT) / 2


def describe_non_finite(x: Tensor) -> str:
    """Say how many entries of a tensor are NaN or infinite, for an error message."""
    return f"{int(x.isnan().sum())} NaN and {int(x.isinf().sum())} infinite of {x.numel()} entries"


def find_missing(lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return which lengths ``(…, n)`` are zero up to rounding, and their substitutes: the longest, or 1 where all are 0.

    A matrix with dependent columns has no direction there and no derivative. The maps complete the basis and
    differentiate as though the added direction had the length of the longest: finite, and training moves away from it.
    """
    longest = lengths.amax(-1, keepdim=True)
    rounding = 4 * lengths.shape[-1] * torch.finfo(lengths.dtype).eps
    # below 1e-20 a slope of 1/length would leave the range of float32
    return lengths <= (rounding * longest).clamp_min(1e-20), torch.where(longest > 1e-20, longest, 1)
