"""The two additive margins: on the cosine, and on the angle."""

import math

from jaxtyping import Float
from torch import Tensor

from .extension import continue_past_pi, continue_past_pi_with_slope
from .margin import (
    EMPTY_CONTEXT,
    Context,
    Margin,
    Sloped,
    Strength,
    check_strength,
    evaluate_constant,
    evaluate_strength,
    evaluate_with_slope,
    format_numbers,
)


class AdditiveCosine(Margin):
    r"""ψ(θ) = cos θ − m: AM-Softmax, CosFace (L_a1, eq. D.11). ``m = 0`` is no margin.

    >>> AdditiveCosine(0.25).target(torch.tensor([1.0, 0.5]))
    tensor([0.7500, 0.2500])
    """

    def __init__(self, m: float | Strength = 0.35):  # the best setting of AM-Softmax, which D.6 follows
        super().__init__()
        self.m = check_strength("m", m, 0)

    def target(self, cos: Float[Tensor, "*n"], context: Context = EMPTY_CONTEXT) -> Float[Tensor, "*n"]:
        """Return g(θ) − m."""
        return context.g(cos) - evaluate_strength(self.m, context)

    def target_with_slope(self, cos: Float[Tensor, "*n"], context: Context = EMPTY_CONTEXT) -> Sloped | None:
        """Return the score and the slope of g."""
        m, score = evaluate_constant(self.m, context), evaluate_with_slope(context.g, cos)
        return None if m is None or score is None else (score[0] - m, score[1])

    def warning(self) -> str | None:
        """Return a warning for an offset above 1."""
        unusual = not isinstance(self.m, Strength) and self.m > 1
        return f"a margin m={self.m!r} on the cosine is unusually large; 0.1 to 0.5 are usual" if unusual else None

    def extra_repr(self) -> str:
        """Return the offset."""
        return format_numbers(m=self.m)


class AdditiveAngle(Margin):
    r"""ψ(θ) = cos(θ + m): ArcFace (L_a2). ``m`` is in radians, in [0, π); ``m = 0`` is no margin.

    Beyond θ + m = π the cosine would increase again. There ψ(θ) = −cos(θ + m) − 2, which continues it as eq. 2.6 continues
    the multiplicative margin: ψ is continuous and decreases to cos m − 2 at θ = π.

    >>> AdditiveAngle(0.5).target(torch.tensor([1.0, 0.0, -1.0]))
    tensor([ 0.8776, -0.4794, -1.1224])
    """

    def __init__(self, m: float | Strength = 0.5):  # ArcFace's own value; Liu (2020) leaves it open
        super().__init__()
        self.m = check_strength("m", m, 0, math.pi)

    def target(self, cos: Float[Tensor, "*n"], context: Context = EMPTY_CONTEXT) -> Float[Tensor, "*n"]:
        """Return g(θ + m), continued past π."""
        return continue_past_pi(cos, 1.0, evaluate_strength(self.m, context), context.g)

    def target_with_slope(self, cos: Float[Tensor, "*n"], context: Context = EMPTY_CONTEXT) -> Sloped | None:
        """Return the score and, with g = cos, its slope sin(θ + m)/sin θ."""
        m = evaluate_constant(self.m, context)
        return None if m is None else continue_past_pi_with_slope(cos, 1.0, m, context.g)

    def warning(self) -> str | None:
        """Return a warning for an angle above 1.2 rad."""
        unusual = not isinstance(self.m, Strength) and self.m > 1.2
        return f"a margin m={self.m!r} on the angle is unusually large; 0.2 to 0.5 rad are usual" if unusual else None

    def extra_repr(self) -> str:
        """Return the angle."""
        return format_numbers(m=self.m)
