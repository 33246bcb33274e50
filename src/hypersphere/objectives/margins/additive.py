"""The two additive margins: on the cosine, and on the angle."""

import math

from jaxtyping import Float
from torch import Tensor

from .base import Margin, Score, extended, identity, number


class AdditiveCosine(Margin):
    r"""ψ(θ) = cos θ − m: AM-Softmax, CosFace (L_a1, eq. D.11). ``m = 0`` is no margin.

    >>> AdditiveCosine(0.25).target(torch.tensor([1.0, 0.5]))
    tensor([0.7500, 0.2500])
    """

    def __init__(self, m: float = 0.35):  # the best setting of AM-Softmax, which D.6 follows
        super().__init__()
        self.m = number("m", m, 0)

    def target(
        self, cos: Float[Tensor, "n"], norms: Float[Tensor, "n"] | None = None, g: Score = identity
    ) -> Float[Tensor, "n"]:
        """g(θ) − m."""
        return g(cos) - self.m

    def extra_repr(self) -> str:
        """The offset."""
        return f"m={self.m:g}"


class AdditiveAngle(Margin):
    r"""ψ(θ) = cos(θ + m): ArcFace (L_a2). ``m`` is in radians, in [0, π); ``m = 0`` is no margin.

    Where θ + m passes π the cosine would rise again. There ψ(θ) = −cos(θ + m) − 2, the same continuation that eq. 2.6
    gives the multiplicative margin: continuous at −1, decreasing down to cos m − 2 at θ = π.

    >>> AdditiveAngle(0.5).target(torch.tensor([1.0, 0.0, -1.0]))
    tensor([ 0.8776, -0.4794, -1.1224])
    """

    def __init__(self, m: float = 0.5):  # ArcFace's own value; the text leaves it open
        super().__init__()
        self.m = number("m", m, 0, math.pi)

    def target(
        self, cos: Float[Tensor, "n"], norms: Float[Tensor, "n"] | None = None, g: Score = identity
    ) -> Float[Tensor, "n"]:
        """g(θ + m), continued past π."""
        return extended(cos, 1.0, self.m, g)

    def extra_repr(self) -> str:
        """The angle."""
        return f"m={self.m:g}"
