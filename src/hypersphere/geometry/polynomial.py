"""Multiple angles without arccos: cos(mθ) as a function of cos θ."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .angles import arccos, compute_bounded_sine
from .numerics import upcast


def chebyshev(cos: Float[Tensor, "..."], m: float) -> Float[Tensor, "..."]:
    r"""Compute cos(mθ) from cos θ ∈ [−1, 1]: the Chebyshev polynomial T_m for integer ``m``, cos(m·arccos) for real m ≥ 0.

    For an integer ``m`` it is smooth, with slope ±m² at ±1. It is computed from 1 − |cos θ| by Reinsch's form of the
    three-term recurrence, which is accurate near the poles, where 2cT_k − T_{k−1} loses digits. For a real ``m`` the slope is m²
    at θ = 0. At θ = π it is infinite and is limited to m/√ε.

    >>> chebyshev(torch.tensor([1.0, 0.5, 0.0, -1.0]), 2)
    tensor([ 1.0000, -0.5000, -1.0000,  1.0000])
    >>> chebyshev(torch.tensor([0.0]), 1.5)
    tensor([-0.7071])
    """
    if not (math.isfinite(m) and m >= 0):
        raise ValueError(f"m must be a number ≥ 0, got {m!r}")
    x = upcast(cos)
    result = _compute_integer_multiple(x, int(m)) if m == int(m) else _RealMultiple.apply(x, m)
    return result.to(cos.dtype)


def _compute_integer_multiple(cos: Tensor, m: int) -> Tensor:
    if m == 0:
        return torch.ones_like(cos) + 0 * cos
    sign = torch.where(cos < 0, -1.0, 1.0).to(cos.dtype)
    u = 1 - sign * cos
    t, step = 1 - u, -u
    for _ in range(m - 1):
        step = step - 2 * u * t
        t = t + step
    return t if m % 2 == 0 else sign * t


class _RealMultiple(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(cos: Tensor, m: float) -> Tensor:
        return torch.cos(m * torch.acos(cos.clamp(-1, 1)))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.m = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (cos,) = ctx.saved_tensors
        m, sin = ctx.m, compute_bounded_sine(cos)
        at_zero = (cos > 0) & (sin * sin <= torch.finfo(cos.dtype).eps)
        slope = torch.where(at_zero, m * m, m * torch.sin(m * arccos(cos)) / sin)
        return grad * slope, None
