"""The multiplicative angular margin of L-Softmax, A-Softmax and GA-Softmax."""

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


class Multiplicative(Margin):
    r"""ψ(θ) = (−1)^k cos(mθ) − 2k for θ ∈ [kπ/m, (k+1)π/m]  (eq. 2.6).

    The angle between a feature and its own class must be ``m`` times smaller than that to any other class. Between the
    features of two classes at an angle θ₁₂, this leaves a gap of (m − 1)/(m + 1)·θ₁₂ (2.2.4). ``m = 1`` is no margin. With
    another g of :mod:`hypersphere.angular` it is GA-Softmax (eq. 3.11), ψ(θ) = g(mθ − kπ) − k(g(0) − g(π)). ψ is continuous
    and decreasing for any real ``m`` ≥ 1.

    >>> Multiplicative(2).target(torch.tensor([1.0, 0.0, -1.0]))
    tensor([ 1., -1., -3.])
    """

    def __init__(self, m: float | Strength = 4):  # SphereFace uses 4, which is above the bounds of properties 2 and 3
        super().__init__()
        self.m = check_strength("m", m, 1, 100)

    def target(self, cos: Float[Tensor, "*n"], context: Context = EMPTY_CONTEXT) -> Float[Tensor, "*n"]:
        """Return ψ(θ) from cos θ."""
        return continue_past_pi(cos, evaluate_strength(self.m, context), 0.0, context.g)

    def target_with_slope(self, cos: Float[Tensor, "*n"], context: Context = EMPTY_CONTEXT) -> Sloped | None:
        """Return the score and, with g = cos, its slope m·sin(mθ − kπ)/sin θ."""
        m = evaluate_constant(self.m, context)
        return None if m is None else continue_past_pi_with_slope(cos, m, 0.0, context.g)

    def warning(self) -> str | None:
        """Return a warning for a factor above 10."""
        unusual = not isinstance(self.m, Strength) and self.m > 10
        return f"a multiplicative margin m={self.m!r} is unusually large; 1.5 to 4 are usual" if unusual else None

    def extra_repr(self) -> str:
        """Return the factor."""
        return format_numbers(m=self.m)
