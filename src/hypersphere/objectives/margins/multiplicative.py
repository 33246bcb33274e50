"""The multiplicative angular margin of L-Softmax, A-Softmax and GA-Softmax."""

from jaxtyping import Float
from torch import Tensor

from .extension import extended, extended_with_slope
from .margin import ALONE, Context, Margin, Sloped, Strength, constant, number, shown, value


class Multiplicative(Margin):
    r"""ψ(θ) = (−1)^k cos(mθ) − 2k for θ ∈ [kπ/m, (k+1)π/m]  (eq. 2.6).

    A feature must be ``m`` times closer to its own class than to any other, so two classes θ₁₂ apart keep a gap of
    (m − 1)/(m + 1)·θ₁₂ between their features (2.2.4). ``m = 1`` is no margin. With another g of
    :mod:`hypersphere.angular` it is GA-Softmax (eq. 3.11), ψ(θ) = g(mθ − kπ) − k(g(0) − g(π)).

    An integer ``m`` needs no arccos: cos(mθ) is the Chebyshev polynomial of cos θ. A real ``m`` ≥ 1 is continuous and
    decreasing as well; its last piece ends before it is complete.

    >>> Multiplicative(2).target(torch.tensor([1.0, 0.0, -1.0]))
    tensor([ 1., -1., -3.])
    """

    def __init__(self, m: float | Strength = 4):  # SphereFace uses 4, which is above the bounds of properties 2 and 3
        super().__init__()
        self.m = number("m", m, 1, 100)

    def target(self, cos: Float[Tensor, "*n"], context: Context = ALONE) -> Float[Tensor, "*n"]:
        """ψ(θ) from cos θ."""
        return extended(cos, value(self.m, context), 0.0, context.g)

    def target_with_slope(self, cos: Float[Tensor, "*n"], context: Context = ALONE) -> Sloped | None:
        """With g = cos, m·sin(mθ − kπ)/sin θ."""
        m = constant(self.m, context)
        return None if m is None else extended_with_slope(cos, m, 0.0, context.g)

    def warning(self) -> str | None:
        """A factor beyond 10 is unusual."""
        unusual = not isinstance(self.m, Strength) and self.m > 10
        return f"a multiplicative margin m={self.m!r} is unusually large; 1.5 to 4 are usual" if unusual else None

    def extra_repr(self) -> str:
        """The factor."""
        return shown(m=self.m)
