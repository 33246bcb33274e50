"""All three margins in one."""

import math

from jaxtyping import Float
from torch import Tensor

from .base import Margin, Score, extended, identity, number


class Combined(Margin):
    r"""ψ(θ) = cos(m₁θ + m₂) − m₃, continued past m₁θ + m₂ = π as the multiplicative and the additive angle are.

    ``Combined(m, 0, 0)`` is :class:`Multiplicative`, ``Combined(1, m, 0)`` :class:`AdditiveAngle`, ``Combined(1, 0, m)``
    :class:`AdditiveCosine`. The default is no margin.

    >>> Combined(2, 0.0, 0.25).target(torch.tensor([1.0, 0.0]))
    tensor([ 0.7500, -1.2500])
    """

    def __init__(self, m1: float = 1, m2: float = 0, m3: float = 0):
        super().__init__()
        self.m1, self.m2, self.m3 = number("m1", m1, 1), number("m2", m2, 0, math.pi), number("m3", m3, 0)

    def target(
        self, cos: Float[Tensor, "n"], norms: Float[Tensor, "n"] | None = None, g: Score = identity
    ) -> Float[Tensor, "n"]:
        """g(m₁θ + m₂) − m₃."""
        return extended(cos, self.m1, self.m2, g) - self.m3

    def extra_repr(self) -> str:
        """The three margins."""
        return f"m1={self.m1:g}, m2={self.m2:g}, m3={self.m3:g}"
