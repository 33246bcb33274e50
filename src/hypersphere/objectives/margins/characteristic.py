"""Two multiplicative margins of SphereFace-R: the angle is limited to π, or the angles of the other classes are divided."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ...angular import Cosine
from ...geometry import arccos
from .extension import compute_wave_slope
from .margin import (
    EMPTY_CONTEXT,
    Context,
    Margin,
    Sloped,
    Strength,
    check_strength,
    evaluate_constant,
    evaluate_strength,
    format_numbers,
)


class Clipped(Margin):
    r"""ψ(θ) = cos(min(mθ, π)): SphereFace-R v1 (Liu et al., 2022). ``m = 1`` is no margin.

    Beyond θ = π/m it is constant at −1, so its exact gradient is 0 there. SphereFace-R uses ``gradient="detached"``, whose
    gradient is nowhere 0.

    >>> Clipped(2).target(torch.tensor([1.0, 0.0, -1.0]))
    tensor([ 1., -1., -1.])
    """

    def __init__(self, m: float | Strength = 1.5):
        super().__init__()
        self.m = check_strength("m", m, 1, 100)

    def target(self, cos: Float[Tensor, "*n"], context: Context = EMPTY_CONTEXT) -> Float[Tensor, "*n"]:
        """Return g(min(mθ, π))."""
        m = evaluate_strength(self.m, context)
        if isinstance(m, (int, float)) and m == 1:
            return context.g(cos)
        return context.g.at((m * arccos(cos)).clamp_max(math.pi))

    def target_with_slope(self, cos: Float[Tensor, "*n"], context: Context = EMPTY_CONTEXT) -> Sloped | None:
        """Return the score and, with g = cos, its slope m·sin(mθ)/sin θ, which is 0 past π/m."""
        m = evaluate_constant(self.m, context)
        if m is None or not isinstance(context.g, Cosine):
            return None
        if isinstance(m, (int, float)) and m == 1:
            return cos, torch.ones_like(cos)
        theta = cos.clamp(-1, 1).acos_()
        u = theta * m
        slope = compute_wave_slope(theta, u.sin(), m, 0.0).masked_fill_(u >= math.pi, 0)
        return u.clamp_max_(math.pi).cos_(), slope

    def extra_repr(self) -> str:
        """Return the factor."""
        return format_numbers(m=self.m)


class Shrunk(Margin):
    r"""φ(θ) = cos(θ/m) on the other classes, and ψ(θ) = cos θ: SphereFace-R v2 (Liu et al., 2022).

    It decreases the angles of the other classes instead of increasing that of the target. ``m = 1`` is no margin.

    >>> Shrunk(2).others(torch.tensor([[1.0, -0.5]]))
    tensor([[1.0000, 0.5000]])
    """

    def __init__(self, m: float | Strength = 1.5):
        super().__init__()
        self.m = check_strength("m", m, 1, 100)

    def others(self, cos: Float[Tensor, "n c"], context: Context = EMPTY_CONTEXT) -> Float[Tensor, "n c"]:
        """Return g(θ/m)."""
        m = evaluate_strength(self.m, context)
        return context.g(cos) if isinstance(m, (int, float)) and m == 1 else context.g.at(arccos(cos) / m)

    def extra_repr(self) -> str:
        """Return the divisor."""
        return format_numbers(m=self.m)
