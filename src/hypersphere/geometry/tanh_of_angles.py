r"""tanh of an angle that is known by its cosine, with the slope: the sigmoid angle of operators, without arcsin and tanh."""

import functools
import math

import torch
from jaxtyping import Float
from torch import Tensor

from .angles import inverse_sine

# Together they take as long as arcsin and tanh from about this many coefficients on; k ≥ 0.1 needs at most 13.
_MOST = 14
_ACCURATE = 2**-26


def tanh_of_latitude(cos: Float[Tensor, "..."], k: float) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
    r"""tanh((π/2 − θ)/2k), and 1/sin θ as :func:`~hypersphere.geometry.angles.inverse_sine` has it, both without a graph.

    In float32, with τ = tan((π/2 − θ)/2) = cos θ/(1 + sin θ), tanh(arctan(τ)/k) = τ·P(τ²)/Q(τ²). P and Q have positive
    coefficients, so digits are kept everywhere, also relative ones near 0: the value is within 3 units in the last place. Other
    dtypes, and a ``k`` so small that the polynomials are long, take arcsin and tanh.

    >>> tanh_of_latitude(torch.tensor([0.0, 0.6, 1.0]), 0.5)[0]
    tensor([0.0000, 0.5673, 0.9172])
    """
    fraction = _on(k, cos.device) if cos.dtype == torch.float32 else None
    if fraction is None:
        return cos.clamp(-1, 1).asin_().div_(2 * k).tanh_(), inverse_sine(cos)
    one, limits = cos.new_ones(()), torch.finfo(cos.dtype)
    size = cos.abs()
    short = torch.sub(one, size)  # without rounding where the sine is small
    sine = torch.addcmul(short, short, size).clamp_min_(limits.tiny)
    over = sine.rsqrt()
    sine.mul_(over)
    tangent = torch.div(cos, torch.add(sine, one, out=size), out=short)
    square = torch.mul(tangent, tangent, out=size)
    above, below = (_polynomial(coefficients, square) for coefficients in fraction)
    return tangent.mul_(above).div_(below), over.clamp_max_(1 / math.sqrt(limits.eps))


def _polynomial(coefficients: tuple[tuple[Tensor, ...], float], x: Tensor) -> Tensor:
    """Horner's scheme, one pass a coefficient; the last one is a number."""
    (*lower, second), last = coefficients
    result = torch.add(second, x, alpha=last)
    for coefficient in reversed(lower):
        torch.addcmul(coefficient, result, x, out=result)
    return result


@functools.lru_cache(maxsize=64)
def _on(k: float, device: torch.device) -> list[tuple[tuple[Tensor, ...], float]] | None:
    fraction = tanh_of_arctan(k)
    if fraction is None:
        return None
    return [(part[:-1].to(device, torch.float32).unbind(), part[-1].item()) for part in fraction]


def tanh_of_arctan(k: float) -> tuple[Float[Tensor, "p"], Float[Tensor, "q"]] | None:
    r"""P and Q of the shortest fraction with tanh(arctan(τ)/k) = τ·P(τ²)/Q(τ²) to 2⁻²⁶ for |τ| ≤ 1; None if it is long.

    tanh(arctan(τ)/k)/τ is a Stieltjes function of τ²: its continued fraction in τ² has the positive coefficients (k⁻² + j²).
    So a fraction that agrees with it in as many points as it has coefficients has positive ones as well. The points
    are Chebyshev's.

    >>> [len(part) for part in tanh_of_arctan(0.5)], tanh_of_arctan(0.01)
    ([4, 5], None)
    """
    tested = torch.linspace(1e-6, 1, 2001, dtype=torch.float64).square()
    for count in range(5, _MOST + 1):
        p, q = count // 2, count - count // 2
        points = (
            1 - torch.cos(torch.linspace(0.5, count - 1.5, count - 1, dtype=torch.float64) * math.pi / (count - 1))
        ) / 2
        values = _over_tangent(points, k)
        powers = points[:, None] ** torch.arange(q, dtype=torch.float64)
        # P(y)/f(y) − (Q(y) − 1) = 1 in every point y.
        system = torch.cat([powers[:, :p] / values[:, None], -powers[:, 1:]], 1)
        solved = torch.linalg.solve(system, torch.ones_like(points))
        above, below = solved[:p], torch.cat([solved.new_ones(1), solved[p:]])
        found = (tested[:, None] ** torch.arange(p)) @ above / ((tested[:, None] ** torch.arange(q)) @ below)
        wrong = (found / _over_tangent(tested, k) - 1).abs().max().item()
        if wrong <= _ACCURATE and bool((solved > 0).all()):
            return above, below
    return None


def _over_tangent(square: Tensor, k: float) -> Tensor:
    tangent = square.sqrt()
    return torch.tanh(torch.atan(tangent) / k) / tangent
