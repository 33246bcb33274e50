"""Continuation of a margin's function of the angle beyond π: continuous and decreasing."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ...angular import Cosine
from ...geometry import arccos, chebyshev, upcast
from ...geometry.numerics import is_traced
from .margin import COSINE, AngularScore, Sloped


def continue_past_pi(
    cos: Float[Tensor, "..."], m1: float | Tensor, m2: float | Tensor, g: AngularScore = COSINE
) -> Float[Tensor, "..."]:
    r"""Compute g(m₁θ + m₂), continued past π so that it stays continuous and decreasing.

    .. math:: Ψ(u) = g(u − kπ) − k·(g(0) − g(π)), \quad u ∈ [kπ, (k+1)π]

    With g = cos and m₂ = 0 this is (−1)^k cos(mθ) − 2k (eq. 2.6). For m₁ ≥ 1 and m₂ ≥ 0 it never exceeds g(θ), because Ψ
    decreases, agrees with g on [0, π], and u ≥ θ. With a negative m₂, u may be below 0; there Ψ(u) = g(0).

    With g = cos the derivative is written by hand: ∂Ψ/∂cos θ = m₁·sin(u − kπ)/sin θ. For m₂ = 0 its limit is m₁² at θ = 0, and
    at θ = π if m₁ is an integer. At the other poles it is bounded as in :func:`~hypersphere.geometry.arccos`. The arccos is
    computed once and g is evaluated at u − kπ, so the result is accurate near the ends of the pieces.

    >>> continue_past_pi(torch.tensor([1.0, 0.0, -1.0]), 2, 0)
    tensor([ 1., -1., -3.])
    """
    if isinstance(m1, (int, float)) and isinstance(m2, (int, float)) and m1 == 1 and m2 == 0:
        return g(cos)
    if not isinstance(g, Cosine) or is_traced() or (isinstance(m1, Tensor) and m1.requires_grad):
        return continue_past_pi_plainly(cos, m1, m2, g)
    result: Tensor = _ExtendedCosine.apply(upcast(cos), m1, m2)
    return result.to(cos.dtype)


def continue_past_pi_with_slope(
    cos: Float[Tensor, "..."], m1: float | Tensor, m2: float | Tensor, g: AngularScore = COSINE
) -> Sloped | None:
    """Return :func:`continue_past_pi` and its derivative by cos θ without a graph; None if g is not the cosine.

    >>> continue_past_pi_with_slope(torch.tensor([1.0, 0.0, -1.0]), 2, 0)
    (tensor([ 1., -1., -3.]), tensor([4., 0., 4.]))
    """
    if not isinstance(g, Cosine):
        return None
    if isinstance(m1, (int, float)) and isinstance(m2, (int, float)) and m1 == 1 and m2 == 0:
        return cos, torch.ones_like(cos)
    value, _, slope = _compute_wave(cos, m1, m2)
    return value, slope


def continue_past_pi_plainly(
    cos: Float[Tensor, "..."], m1: float | Tensor, m2: float | Tensor, g: AngularScore
) -> Float[Tensor, "..."]:
    """Compute :func:`continue_past_pi` with operations that autograd, the compiler and function transforms can trace.

    cos(mθ) is computed as the Chebyshev polynomial of cos θ, without an arccos.

    >>> continue_past_pi_plainly(torch.tensor([1.0, 0.0, -1.0]), 1.0, 0.5, COSINE)
    tensor([ 0.8776, -0.4794, -1.1224])
    """
    if isinstance(m1, (int, float)) and isinstance(m2, (int, float)) and m2 == 0 and isinstance(g, Cosine):
        k = sum(((cos < bound).to(cos.dtype) for bound in _find_piece_ends(m1)), torch.zeros_like(cos))
        # Rounding may give values slightly outside of [−1, 1] at the ends of a piece, where the slope is 0.
        return ((1 - 2 * (k % 2)) * chebyshev(cos, m1)).clamp(-1, 1) - 2 * k
    u = m1 * arccos(cos) + m2
    if isinstance(m2, Tensor):
        u = u.clamp_min(0)
    k = (u.detach() / math.pi).floor()
    return g.at(u - k * math.pi) - k * g.span(cos)


class _ExtendedCosine(torch.autograd.Function):
    """Ψ of the cosine with its derivatives by cos θ and m₂. A second derivative uses :func:`continue_past_pi_plainly`."""

    @staticmethod
    def forward(ctx: Any, cos: Tensor, m1: float | Tensor, m2: float | Tensor) -> Tensor:
        value, fall, slope = _compute_wave(cos, m1, m2)
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(cos, *[m for m in (m1, m2) if isinstance(m, Tensor)], fall, slope)
            ctx.m1, ctx.m2 = (None if isinstance(m, Tensor) else m for m in (m1, m2))
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, Tensor | None]:
        cos, *margins, fall, slope = ctx.saved_tensors
        needs = ctx.needs_input_grad
        if torch.is_grad_enabled():
            m1 = margins.pop(0) if ctx.m1 is None else ctx.m1
            m2 = margins.pop(0) if ctx.m2 is None else ctx.m2
            inputs = [t for t, need in ((cos, needs[0]), (m2, needs[2])) if need]
            value = continue_past_pi_plainly(cos, m1, m2, COSINE)
            gradients = iter(torch.autograd.grad(value, inputs, grad, create_graph=True))
            return next(gradients) if needs[0] else None, None, next(gradients) if needs[2] else None
        return grad * slope if needs[0] else None, None, -grad * fall if needs[2] else None


def _compute_wave(cos: Tensor, m1: float | Tensor, m2: float | Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return Ψ, −∂Ψ/∂u = sin(u − kπ) and ∂Ψ/∂cos θ, in as few calls as possible: their number determines the time."""
    theta = cos.clamp(-1, 1).acos_()
    u = theta + m2 if isinstance(m1, (int, float)) and m1 == 1 else (theta * m1).add_(m2)
    k = u.div(math.pi, rounding_mode="floor")
    if isinstance(m2, Tensor):  # it may be negative, and u below 0
        k.clamp_min_(0)
    rest = u.sub_(k, alpha=math.pi)
    if isinstance(m2, Tensor):
        rest.clamp_min_(0)
    fall = rest.sin()
    return rest.cos_().sub_(k, alpha=2), fall, compute_wave_slope(theta, fall, m1, m2)


def compute_wave_slope(theta: Tensor, fall: Tensor, m1: float | Tensor, m2: float | Tensor) -> Tensor:
    """Return m₁·sin(u − kπ)/sin θ. At the poles it is the limit if there is one, otherwise a bounded value."""
    least = torch.finfo(theta.dtype).eps ** 0.5
    sine = theta.sin()
    slope = fall / sine.clamp_min(least)
    if isinstance(m1, Tensor) or isinstance(m2, Tensor) or m2 != 0:
        return slope if isinstance(m1, (int, float)) and m1 == 1 else slope.mul_(m1)
    pole = sine <= least if m1 == int(m1) else (sine <= least).logical_and_(theta < 1)
    return slope.mul_(m1).masked_fill_(pole, m1 * m1)


def _find_piece_ends(m: float) -> list[float]:
    """Return cos θ at mθ = kπ for every k ≥ 1 with kπ/m < π."""
    return [math.cos(k * math.pi / m) for k in range(1, math.ceil(m - 1e-9))]
