r"""Functions of the latitude π/2 − θ from cos θ, without arcsin: cos θ times a polynomial in sin θ, with 1/sin θ.

An odd function of the latitude, divided by cos θ, is a smooth function of sin θ on all of [0, 1], also where arcsin
has no slope.
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

_ACCURATE = 2**-23.6  # half of a unit in the last place of float32, and a little
# With more coefficients it takes as long as arcsin and tanh; powers of sin θ itself lose digits from 11 on.
_MOST_ODD, _MOST_EVEN = 16, 10

# (π/2 − θ)/cos θ in powers of sin θ − ½, as `fit_sine_polynomial` finds it.
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
    r"""Return π/2 − θ and 1/sin θ, as by :func:`~hypersphere.geometry.angles.inverse_sine`, as new tensors without a graph.

    float32 goes by :func:`evaluate_sine_polynomial` and is within 2 units in the last place; other dtypes take arcsin.

    >>> latitude(torch.tensor([0.0, 0.6, 1.0]))[0]
    tensor([0.0000, 0.6435, 1.5708])
    """
    if cos.dtype == torch.float32:
        return evaluate_sine_polynomial(cos, _LATITUDE)
    return cos.clamp(-1, 1).asin_(), inverse_sine(cos)


def evaluate_sine_polynomial(
    cos: Float[Tensor, "..."], coefficients: tuple[float, ...]
) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
    r"""Return cos θ·A(sin θ − ½) and 1/sin θ, at most 1/√ε, two new tensors without a graph.

    A has the coefficients that :func:`fit_sine_polynomial` finds. The digits near 0 are those of cos θ. Traced, it is a chain
    of plain operations, of which a compiler makes one loop.

    >>> evaluate_sine_polynomial(torch.tensor([0.0, 0.6]), (1.0, 2.0))
    (tensor([0.0000, 0.9600]), tensor([1.0000, 1.2500]))
    """
    bound = math.sqrt(torch.finfo(cos.dtype).eps)
    if is_traced():
        size = cos.abs()
        short = 1 - size  # without rounding where the sine is small
        sine = (short + short * size).clamp_min(0).sqrt()
        return _polynomial(coefficients, sine - 0.5) * cos, sine.clamp_min(bound).reciprocal()
    one, half, *lower, second = _numbers((1.0, 0.5, *coefficients[:-1]), cos.dtype, cos.device)
    size = cos.abs()
    short = torch.sub(one, size)
    sine = torch.addcmul(short, short, size, out=size).clamp_min_(0).sqrt_()
    moved = torch.sub(sine, half, out=short)
    value = torch.add(second, moved, alpha=coefficients[-1])
    for number in reversed(lower):
        torch.addcmul(number, value, moved, out=value)
    return value.mul_(cos), sine.clamp_min_(bound).reciprocal_()


def evaluate_slope_polynomial(cos: Float[Tensor, "..."], coefficients: tuple[float, ...]) -> Float[Tensor, "..."]:
    r"""Return A(sin θ)²/sin θ, the sine at least √ε: the slope in cos θ of a function of the latitude, in plain operations.

    They are for a compiler: ``cos`` is read once for each coefficient, as inductor pays for each reading of a map that
    it transposes. Hence the sine is √(1 − cos²θ), which has the digits that a rounded cosine leaves to it, and hence the square.

    >>> evaluate_slope_polynomial(torch.tensor([0.0, 0.6]), (1.0, 2.0))
    tensor([9.0000, 8.4500])
    """
    square = (1 - cos.square()).clamp_min(torch.finfo(cos.dtype).eps)
    return _polynomial(coefficients, square.sqrt()).square() * square.rsqrt()


def fit_sine_polynomial(
    function: Callable[[Tensor], Tensor], *, odd: bool = True, accurate: float = _ACCURATE
) -> tuple[float, ...] | None:
    r"""Fit the shortest A with function(π/2 − θ) = cos θ·A(sin θ − ½), or A(sin θ) for an even function; None if it is long.

    ``function`` must be smooth on [−π/2, π/2]. A agrees with it in Chebyshev's points. Elsewhere an odd function is off
    by at most ``accurate`` of its value, an even one by ``accurate`` of its greatest value. In powers of sin θ − ½ the
    terms are not larger than their sum, so that float32 loses a rounding or two.

    >>> [round(a, 6) for a in fit_sine_polynomial(lambda latitude: torch.sin(latitude) * (1 + torch.cos(latitude)))]
    [1.5, 1.0]
    """

    def target_function(sine: Tensor) -> Tensor:
        cos = ((1 - sine) * (1 + sine)).clamp_min(1e-12).sqrt()
        return function(torch.atan2(cos, sine)) / (cos if odd else torch.ones_like(cos))

    exact: dict[str, Any] = {"dtype": torch.float64, "device": "cpu"}  # also where a model is built on no device
    tested, center = torch.linspace(0, 1, 2001, **exact), 0.5 if odd else 0.0
    values = target_function(tested)
    near = accurate * (values if odd else values.max()).abs()
    for count in range(1, (_MOST_ODD if odd else _MOST_EVEN) + 1):
        places = torch.linspace(0.5, count - 0.5, count, **exact) * (math.pi / count)
        points = (1 + torch.cos(places)) / 2
        found = torch.linalg.solve(_powers(points - center, count), target_function(points))
        if bool(((_powers(tested - center, count) @ found - values).abs() <= near).all()):
            return tuple(found.tolist())
    return None


@functools.lru_cache(maxsize=64)
def tanh_polynomials(k: float) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    r"""Return polynomial coefficients for g = T·tanh((π/2 − θ)/2k), which is 1 at θ = 0, and for its slope.

    They are None where k is below about 0.25 and 0.35: tanh is too steep there.

    >>> [len(part) for part in tanh_polynomials(0.5)], tanh_polynomials(0.1)
    ([9, 8], (None, None))
    """
    top = 1 / math.tanh(math.pi / (4 * k))
    value = fit_sine_polynomial(lambda latitude: top * torch.tanh(latitude / (2 * k)))
    root = math.sqrt(top / (2 * k))
    # The slope is otherwise made of 1 − (g/T)², which has the digits of 1; no more of them are asked for here.
    slope = fit_sine_polynomial(lambda latitude: root / torch.cosh(latitude / (2 * k)), odd=False, accurate=2**-21)
    return value, slope


def _powers(x: Tensor, count: int) -> Tensor:
    return x[:, None] ** torch.arange(count, dtype=x.dtype, device=x.device)


def _polynomial(coefficients: tuple[float, ...], x: Tensor) -> Tensor:
    value = torch.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value * x + coefficient
    return value


@functools.lru_cache(maxsize=64)
def _numbers(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> tuple[Tensor, ...]:
    """Return the numbers as 0-d tensors, which are added to a tile in half the time of Python numbers."""
    return torch.tensor(values, dtype=dtype, device=device).unbind()
