r"""Functions of the latitude π/2 − θ from cos θ, computed without arcsin as cos θ times a polynomial in sin θ.

An odd function of the latitude, divided by cos θ, is a smooth function of sin θ on [0, 1], so a short polynomial approximates it.
The functions also return 1/sin θ, which derivatives by cos θ contain.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .angles import inverse_sine
from .numerics import is_traced

MAX_RELATIVE_ERROR = 2**-23.6
"""A little more than half of a unit in the last place of float32."""
MAX_ODD_TERMS, MAX_EVEN_TERMS = 16, 10
"""More terms of an odd function take as long as arcsin and tanh. More than 10 powers of sin θ lose digits."""

# The coefficients of (π/2 − θ)/cos θ in powers of sin θ − ½, computed by fit_sine_polynomial.
_LATITUDE = (
    1.2091995761561454,
    -0.5271987895457328,
    0.2789318189433051,
    -0.15877619689718903,
    0.09383630279048501,
    -0.05561914686305827,
    0.03415704680674432,
    -0.027334827952954936,
    0.01718536918191667,
)


def latitude(cos: Float[Tensor, "..."]) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
    r"""Return π/2 − θ, and 1/sin θ as :func:`~hypersphere.geometry.angles.inverse_sine` does, as new tensors without a graph.

    In float32 it uses :func:`evaluate_sine_polynomial`, with an error of at most 2 units in the last place. Other dtypes use
    arcsin.

    >>> latitude(torch.tensor([0.0, 0.6, 1.0]))[0]
    tensor([0.0000, 0.6435, 1.5708])
    """
    if cos.dtype == torch.float32:
        return evaluate_sine_polynomial(cos, _LATITUDE)
    return cos.clamp(-1, 1).asin_(), inverse_sine(cos)


def evaluate_sine_polynomial(
    cos: Float[Tensor, "..."], coefficients: tuple[float, ...]
) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
    r"""Return cos θ·A(sin θ − ½) and 1/sin θ, which is at most 1/√ε, as new tensors without a graph.

    A is a polynomial with the coefficients of :func:`fit_sine_polynomial`. Small results have the relative accuracy of cos θ. While
    tracing it uses plain operations, which a compiler fuses into one loop.

    >>> evaluate_sine_polynomial(torch.tensor([0.0, 0.6]), (1.0, 2.0))
    (tensor([0.0000, 0.9600]), tensor([1.0000, 1.2500]))
    """
    bound = math.sqrt(torch.finfo(cos.dtype).eps)
    if is_traced():
        size = cos.abs()
        short = 1 - size  # exact if the sine is small
        sine = (short + short * size).clamp_min(0).sqrt()
        return _evaluate_polynomial(coefficients, sine - 0.5) * cos, sine.clamp_min(bound).reciprocal()
    one, half, *lower, second = _create_scalars((1.0, 0.5, *coefficients[:-1]), cos.dtype, cos.device)
    size = cos.abs()
    short = torch.sub(one, size)
    sine = torch.addcmul(short, short, size, out=size).clamp_min_(0).sqrt_()
    moved = torch.sub(sine, half, out=short)
    value = torch.add(second, moved, alpha=coefficients[-1])
    for number in reversed(lower):
        torch.addcmul(number, value, moved, out=value)
    return value.mul_(cos), sine.clamp_min_(bound).reciprocal_()


def evaluate_slope_polynomial(cos: Float[Tensor, "..."], coefficients: tuple[float, ...]) -> Float[Tensor, "..."]:
    r"""Return A(sin θ)²/sin θ with sin θ ≥ √ε: the derivative by cos θ of a function of the latitude.

    It consists of plain operations for a compiler. The sine is computed as √(1 − cos²θ), which reads ``cos`` only once, because
    reading a transposed tensor is slow in compiled code.

    >>> evaluate_slope_polynomial(torch.tensor([0.0, 0.6]), (1.0, 2.0))
    tensor([9.0000, 8.4500])
    """
    square = (1 - cos.square()).clamp_min(torch.finfo(cos.dtype).eps)
    return _evaluate_polynomial(coefficients, square.sqrt()).square() * square.rsqrt()


def fit_sine_polynomial(
    function: Callable[[Tensor], Tensor], *, odd: bool = True, max_error: float = MAX_RELATIVE_ERROR
) -> tuple[float, ...] | None:
    r"""Fit the shortest polynomial A with function(π/2 − θ) = cos θ·A(sin θ − ½), or A(sin θ) for an even function.

    ``function`` must be smooth on [−π/2, π/2]. A interpolates it at Chebyshev's points. The error of an odd function is at most
    ``max_error`` of its value, that of an even function at most ``max_error`` of its maximum. In powers of sin θ − ½ no term is
    larger than the sum, so float32 loses only one or two roundings.

    Returns:
        The coefficients, or None if more than ``MAX_ODD_TERMS`` or ``MAX_EVEN_TERMS`` are needed.

    >>> [round(a, 6) for a in fit_sine_polynomial(lambda latitude: torch.sin(latitude) * (1 + torch.cos(latitude)))]
    [1.5, 1.0]
    """

    def target_function(sine: Tensor) -> Tensor:
        cos = ((1 - sine) * (1 + sine)).clamp_min(1e-12).sqrt()
        return function(torch.atan2(cos, sine)) / (cos if odd else torch.ones_like(cos))

    # Name the device, because a model may be built with the meta device as the default.
    exact: dict[str, Any] = {"dtype": torch.float64, "device": "cpu"}
    tested, center = torch.linspace(0, 1, 2001, **exact), 0.5 if odd else 0.0
    values = target_function(tested)
    tolerance = max_error * (values if odd else values.max()).abs()
    for count in range(1, (MAX_ODD_TERMS if odd else MAX_EVEN_TERMS) + 1):
        angles = torch.linspace(0.5, count - 0.5, count, **exact) * (math.pi / count)
        points = (1 + torch.cos(angles)) / 2
        coefficients = torch.linalg.solve(_compute_powers(points - center, count), target_function(points))
        if bool(((_compute_powers(tested - center, count) @ coefficients - values).abs() <= tolerance).all()):
            return tuple(coefficients.tolist())
    return None


@functools.lru_cache(maxsize=64)
def tanh_polynomials(k: float) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    r"""Return polynomial coefficients for g = T·tanh((π/2 − θ)/2k), which is 1 at θ = 0, and for its slope.

    The first is None for k below about 0.25, the second for k below about 0.35, because tanh is too steep there.

    >>> [len(part) for part in tanh_polynomials(0.5)], tanh_polynomials(0.1)
    ([9, 8], (None, None))
    """
    top = 1 / math.tanh(math.pi / (4 * k))
    value = fit_sine_polynomial(lambda latitude: top * torch.tanh(latitude / (2 * k)))
    root = math.sqrt(top / (2 * k))
    # Without the polynomial, the slope is computed from 1 − (g/T)², which is no more accurate than this error.
    slope = fit_sine_polynomial(lambda latitude: root / torch.cosh(latitude / (2 * k)), odd=False, max_error=2**-21)
    return value, slope


def _compute_powers(x: Tensor, count: int) -> Tensor:
    return x[:, None] ** torch.arange(count, dtype=x.dtype, device=x.device)


def _evaluate_polynomial(coefficients: tuple[float, ...], x: Tensor) -> Tensor:
    value = torch.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value * x + coefficient
    return value


@functools.lru_cache(maxsize=64)
def _create_scalars(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> tuple[Tensor, ...]:
    """Return the numbers as 0-d tensors, which operations on small tensors take half as long to add as Python numbers."""
    return torch.tensor(values, dtype=dtype, device=device).unbind()
