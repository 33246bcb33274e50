"""The two additive margins: on the cosine, and on the angle."""

import math

from jaxtyping import Float
from torch import Tensor

from .extension import extended, extended_with_slope
from .margin import ALONE, Context, Margin, Sloped, Strength, constant, number, shown, sloped, value


class AdditiveCosine(Margin):
    r"""ψ(θ) = cos θ − m: AM-Softmax, CosFace (L_a1, eq. D.11). ``m = 0`` is no margin.

    >>> AdditiveCosine(0.25).target(torch.tensor([1.0, 0.5]))
    tensor([0.7500, 0.2500])
    """

    def __init__(self, m: float | Strength = 0.35):  # the best setting of AM-Softmax, which D.6 follows
        super().__init__()
        self.m = number("m", m, 0)

    def target(self, cos: Float[Tensor, "*n"], context: Context = ALONE) -> Float[Tensor, "*n"]:
        """g(θ) − m."""
        return context.g(cos) - value(self.m, context)

    def target_with_slope(self, cos: Float[Tensor, "*n"], context: Context = ALONE) -> Sloped | None:
        """The slope is that of g."""
        m, found = constant(self.m, context), sloped(context.g, cos)
        return None if m is None or found is None else (found[0] - m, found[1])

    def warning(self) -> str | None:
        """An offset beyond 1 is unusual: no two unit vectors are more than 2 apart in cosine."""
        unusual = not isinstance(self.m, Strength) and self.m > 1
        return f"a margin m={self.m!r} on the cosine is unusually large; 0.1 to 0.5 are usual" if unusual else None

    def extra_repr(self) -> str:
        """The offset."""
        return shown(m=self.m)


class AdditiveAngle(Margin):
    r"""ψ(θ) = cos(θ + m): ArcFace (L_a2). ``m`` is in radians, in [0, π); ``m = 0`` is no margin.

    Where θ + m passes π the cosine would rise again. There ψ(θ) = −cos(θ + m) − 2, the same continuation that eq. 2.6
    gives the multiplicative margin: continuous at −1, decreasing down to cos m − 2 at θ = π.

    >>> AdditiveAngle(0.5).target(torch.tensor([1.0, 0.0, -1.0]))
    tensor([ 0.8776, -0.4794, -1.1224])
    """

    def __init__(self, m: float | Strength = 0.5):  # ArcFace's own value; Liu (2020) leaves it open
        super().__init__()
        self.m = number("m", m, 0, math.pi)

    def target(self, cos: Float[Tensor, "*n"], context: Context = ALONE) -> Float[Tensor, "*n"]:
        """g(θ + m), continued past π."""
        return extended(cos, 1.0, value(self.m, context), context.g)

    def target_with_slope(self, cos: Float[Tensor, "*n"], context: Context = ALONE) -> Sloped | None:
        """With g = cos, sin(θ + m)/sin θ."""
        m = constant(self.m, context)
        return None if m is None else extended_with_slope(cos, 1.0, m, context.g)

    def warning(self) -> str | None:
        """An angle beyond 1.2 rad is unusual."""
        unusual = not isinstance(self.m, Strength) and self.m > 1.2
        return f"a margin m={self.m!r} on the angle is unusually large; 0.2 to 0.5 rad are usual" if unusual else None

    def extra_repr(self) -> str:
        """The angle."""
        return shown(m=self.m)
