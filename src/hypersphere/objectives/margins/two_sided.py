"""A margin on both sides of the decision: the target lower, the others higher."""

from jaxtyping import Float
from torch import Tensor

from .additive import AdditiveCosine
from .margin import (
    EMPTY_CONTEXT,
    Context,
    Sloped,
    Strength,
    evaluate_constant,
    evaluate_strength,
    evaluate_with_slope,
)


class TwoSided(AdditiveCosine):
    r"""ψ = g(θ) − m on the target and φ = g(θ) + m on the others: SphereFace2's margin (Wen et al., 2022).

    In a softmax it equals one margin of 2m on the target. A binary comparison treats each class by itself and needs both.
    ``m = 0`` is no margin.

    >>> TwoSided(0.25).target(torch.tensor([1.0, 0.5])), TwoSided(0.25).others(torch.tensor([[0.5]]))
    (tensor([0.7500, 0.2500]), tensor([[0.7500]]))
    """

    def __init__(self, m: float | Strength = 0.4):  # SphereFace2's value for faces; 0.2 is usual for speakers
        super().__init__(m)

    def others(self, cos: Float[Tensor, "n c"], context: Context = EMPTY_CONTEXT) -> Float[Tensor, "n c"]:
        """Return g(θ) + m."""
        return context.g(cos) + evaluate_strength(self.m, context)

    def others_with_slope(self, cos: Float[Tensor, "n c"], context: Context = EMPTY_CONTEXT) -> Sloped | None:
        """Return the score and the slope of g."""
        m, score = evaluate_constant(self.m, context), evaluate_with_slope(context.g, cos)
        return None if m is None or score is None else (score[0] + m, score[1])
