"""All three margins in one."""

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
    format_numbers,
)


class Combined(Margin):
    r"""ψ(θ) = cos(m₁θ + m₂) − m₃, continued beyond m₁θ + m₂ = π as the multiplicative and the additive margin are.

    ``Combined(m, 0, 0)`` is :class:`Multiplicative`, ``Combined(1, m, 0)`` :class:`AdditiveAngle`, ``Combined(1, 0, m)``
    :class:`AdditiveCosine`. The default is no margin.

    >>> Combined(2, 0.0, 0.25).target(torch.tensor([1.0, 0.0]))
    tensor([ 0.7500, -1.2500])
    """

    def __init__(self, m1: float | Strength = 1, m2: float | Strength = 0, m3: float | Strength = 0):
        super().__init__()
        self.m1, self.m2, self.m3 = (
            check_strength("m1", m1, 1, 100),
            check_strength("m2", m2, 0, math.pi),
            check_strength("m3", m3, 0),
        )

    def target(self, cos: Float[Tensor, "*n"], context: Context = EMPTY_CONTEXT) -> Float[Tensor, "*n"]:
        """Return g(m₁θ + m₂) − m₃."""
        m1, m2, m3 = (evaluate_strength(m, context) for m in (self.m1, self.m2, self.m3))
        return continue_past_pi(cos, m1, m2, context.g) - m3

    def target_with_slope(self, cos: Float[Tensor, "*n"], context: Context = EMPTY_CONTEXT) -> Sloped | None:
        """Return the score and, with g = cos, its slope m₁·sin(m₁θ + m₂ − kπ)/sin θ."""
        m1, m2, m3 = (evaluate_constant(m, context) for m in (self.m1, self.m2, self.m3))
        if m1 is None or m2 is None or m3 is None:
            return None
        score = continue_past_pi_with_slope(cos, m1, m2, context.g)
        return None if score is None else (score[0] - m3, score[1])

    def extra_repr(self) -> str:
        """Return the three margins."""
        return format_numbers(m1=self.m1, m2=self.m2, m3=self.m3)
