r"""Averages of an exponential over the sphere, from modified Bessel functions I_ν in any dimension.

For x uniform on the unit sphere of R^d and any unit u, the moment generating function of the cosine u·x is

.. math:: M_d(κ) = E\,e^{κ·u·x} = Γ(d/2)·(2/κ)^{d/2−1}·I_{d/2−1}(κ)

It normalizes the von Mises–Fisher density, which is e^{κ·u·x}/M_d(κ) relative to the uniform distribution, and gives the mean of a
Gaussian kernel over the sphere. I_ν overflows and underflows in high dimensions, so all functions return logarithms or ratios.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

MIN_EXPANSION_ORDER = 60.0
"""The order from which the uniform expansion of I_ν is exact to float64."""


def log_mean_exponential(kappa: Float[Tensor, "*n"], dim: int) -> Float[Tensor, "*n"]:
    r"""Return log M_d(κ) = log E e^{κ·u·x} of uniform directions x, in float64.

    It is 0 at κ = 0, about κ²/(2d) for small κ and about κ for large κ. The derivative by κ is :func:`mean_length`. It can be
    differentiated twice.

    Args:
        kappa: κ ≥ 0.
        dim: Dimension d, at least 2.

    Raises:
        ValueError: If ``dim`` is below 2.

    >>> log_mean_exponential(torch.tensor([2.0]), 3)  # log(sinh(2)/2)
    tensor([0.5952], dtype=torch.float64)
    """
    _check_dim(dim)
    value: Tensor = _LogMeanExponential.apply(kappa.double(), dim)
    return value


def mean_length(kappa: Float[Tensor, "*n"], dim: int) -> Float[Tensor, "*n"]:
    """Return A_d(κ) = I_{d/2}(κ)/I_{d/2−1}(κ) in float64: the length of the mean of a von Mises–Fisher distribution.

    It rises from 0 at κ = 0, where it is about κ/d, towards 1. It can be differentiated once.

    Args:
        kappa: κ ≥ 0.
        dim: Dimension d, at least 2.

    Raises:
        ValueError: If ``dim`` is below 2.

    >>> mean_length(torch.tensor([0.0, 3.0]), 3)
    tensor([0.0000, 0.6716], dtype=torch.float64)
    """
    _check_dim(dim)
    value: Tensor = _MeanLength.apply(kappa.double(), dim)
    return value


def _check_dim(dim: int) -> None:
    if dim < 2:
        raise ValueError(f"dim must be an integer ≥ 2, got {dim!r}")


class _LogMeanExponential(torch.autograd.Function):
    """log M_d(κ) with its derivative A_d(κ), so that autograd does not differentiate the recurrence."""

    @staticmethod
    def forward(ctx: Any, kappa: Tensor, dim: int) -> Tensor:
        ctx.save_for_backward(kappa)
        ctx.dim = dim
        order = dim / 2 - 1
        return compute_scaled_bessel(kappa, order)[0] - compute_scaled_bessel(kappa.new_zeros(()), order)[0]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (kappa,) = ctx.saved_tensors
        return gradient * mean_length(kappa, ctx.dim), None


class _MeanLength(torch.autograd.Function):
    """A_d(κ), whose derivative is 1 − A² − (d − 1)·A/κ, and 1/d at κ = 0."""

    @staticmethod
    def forward(ctx: Any, kappa: Tensor, dim: int) -> Tensor:
        _, ratio = compute_scaled_bessel(kappa, dim / 2 - 1)
        ctx.save_for_backward(kappa, ratio)
        ctx.dim = dim
        return ratio

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        kappa, ratio = ctx.saved_tensors
        # For small κ the difference loses its digits, so use the derivative of the series κ/d − κ³/(d²(d + 2)).
        small = kappa < 1e-3
        slope = 1 - ratio.square() - (ctx.dim - 1) * ratio / torch.where(small, 1, kappa)
        series = 1 / ctx.dim - 3 * kappa.square() / (ctx.dim**2 * (ctx.dim + 2))
        return gradient * torch.where(small, series, slope), None


def compute_scaled_bessel(kappa: Float[Tensor, "*n"], order: float) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
    """Return log(I_ν(κ)·κ^{−ν}) and I_{ν+1}(κ)/I_ν(κ) in float64.

    Both are computed at a larger order by the uniform expansion. The recurrence I_ν/I_{ν+1} = 2(ν + 1)/κ + I_{ν+2}/I_{ν+1}, which
    is stable for decreasing orders, then leads to ν.

    Args:
        kappa: κ ≥ 0.
        order: ν ≥ 0.

    Returns:
        Both, in the shape of ``kappa``. The first is finite at κ = 0.
    """
    kappa = kappa.double()
    steps = max(0, math.ceil(MIN_EXPANSION_ORDER - order))
    top = order + steps
    root = torch.hypot(kappa, kappa.new_tensor(top))
    value = root - top * torch.log(top + root) + _compute_correction(root, top)
    ratio = _compute_ratio(kappa, root, top)
    for k in range(steps):
        below = top - k - 1
        lifted = 2 * (below + 1) + kappa * ratio  # κ·I_ν/I_{ν+1}
        value, ratio = value + lifted.log(), kappa / lifted
    return value, ratio


def _compute_ratio(kappa: Float[Tensor, "*n"], root: Float[Tensor, "*n"], order: float) -> Float[Tensor, "*n"]:
    """Return I_{ν+1}(κ)/I_ν(κ) of a large ν from the uniform expansions of both, subtracted before they round."""
    above = torch.hypot(kappa, kappa.new_tensor(order + 1))
    step = (2 * order + 1) / (root + above)  # above − root
    exponent = step - order * torch.log1p((1 + step) / (order + root))
    exponent = exponent + _compute_correction(above, order + 1) - _compute_correction(root, order)
    return kappa / (order + 1 + above) * torch.exp(exponent)


def _compute_correction(root: Float[Tensor, "*n"], order: float) -> Float[Tensor, "*n"]:
    """Return log(u(t)/√(2π·root)) with t = ν/root, root = √(ν² + κ²) (Abramowitz and Stegun, 1964, 9.7.7 and 9.3.9)."""
    t = order / root
    first = (3 * t - 5 * t**3) / 24
    second = (81 * t**2 - 462 * t**4 + 385 * t**6) / 1152
    third = (30375 * t**3 - 369603 * t**5 + 765765 * t**7 - 425425 * t**9) / 414720
    fourth = (4465125 * t**4 - 94121676 * t**6 + 349922430 * t**8 - 446185740 * t**10 + 185910725 * t**12) / 39813120
    series = first / order + second / order**2 + third / order**3 + fourth / order**4
    return torch.log1p(series) - 0.5 * torch.log(2 * math.pi * root)
