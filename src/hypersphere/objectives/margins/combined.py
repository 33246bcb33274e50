"""All three margins in one."""

import math

from jaxtyping import Float
from torch import Tensor

from .extension import extended, extended_with_slope
from .margin import ALONE, Context, Margin, Sloped, Strength, constant, number, shown, value


class Combined(Margin):
    r"""ψ(θ) = cos(m₁θ + m₂) − m₃, continued past m₁θ + m₂ = π as the multiplicative and the additive angle are.

    ``Combined(m, 0, 0)`` is :class:`Multiplicative`, ``Combined(1, m, 0)`` :class:`AdditiveAngle`, ``Combined(1, 0, m)``
    :class:`AdditiveCosine`. The default is no margin.

    >>> Combined(2, 0.0, 0.25).target(torch.tensor([1.0, 0.0]))
    tensor([ 0.7500, -1.2500])
    """

    def __init__(self, m1: float | Strength = 1, m2: float | Strength = 0, m3: float | Strength = 0):
        super().__init__()
        self.m1, self.m2, self.m3 = number("m1", m1, 1, 100), number("m2", m2, 0, math.pi), number("m3", m3, 0)

    def target(self, cos: Float[Tensor, "*n"], context: Context = ALONE) -> Float[Tensor, "*n"]:
        """g(m₁θ + m₂) − m₃."""
        m1, m2, m3 = (value(m, context) for m in (self.m1, self.m2, self.m3))
        return extended(cos, m1, m2, context.g) - m3

    def target_with_slope(self, cos: Float[Tensor, "*n"], context: Context = ALONE) -> Sloped | None:
        """With g = cos, m₁·sin(m₁θ + m₂ − kπ)/sin θ."""
        m1, m2, m3 = (constant(m, context) for m in (self.m1, self.m2, self.m3))
        if m1 is None or m2 is None or m3 is None:
            return None
        found = extended_with_slope(cos, m1, m2, context.g)
        return None if found is None else (found[0] - m3, found[1])

    def extra_repr(self) -> str:
        """The three margins."""
        return shown(m1=self.m1, m2=self.m2, m3=self.m3)
