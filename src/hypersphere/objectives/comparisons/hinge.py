"""The multi-class hinge loss, which is 0 if the target's logit exceeds all others by a gap."""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from .comparison_loss import Comparison, Reduce, State, Summary


class MultiClassHinge(Comparison):
    r"""max(0, gap + max_j z_j − t)^power: the hinge loss of the multi-class SVM (Crammer and Singer, 2001), or its square.

    It is the baseline "Hinge Loss" of tables 2.2–2.4, whose exact form Liu (2020) does not give. If several classes share the
    maximum, its gradient is divided equally among them. The squared hinge, which 2.1 also mentions, has a gradient that decreases
    to 0 at the gap; use it if training with the plain hinge alternates between classes.

    Args:
        gap: Difference by which the target's logit must exceed all others; 1 as usual.
        power: 1 for the hinge, 2 for the squared hinge.

    Raises:
        ValueError: If ``gap`` is not positive or ``power`` is neither 1 nor 2.

    >>> hinge = MultiClassHinge()
    >>> summary = hinge.finish(hinge.add(hinge.start(torch.zeros(1)), torch.tensor([[0.5, -3.0]])))
    >>> hinge.loss(torch.tensor([1.0]), summary, 3)
    tensor([0.5000])
    """

    sums = False

    def __init__(self, gap: float = 1.0, power: Literal[1, 2] = 1):
        super().__init__()
        if not 0 < gap < math.inf:
            raise ValueError(f"gap must be a positive number, got {gap!r}")
        if power not in (1, 2):
            raise ValueError(f"power must be 1 or 2, got {power!r}")
        self.gap, self.power = float(gap), power

    def start(self, like: Float[Tensor, "n"]) -> State:
        """Return the state of no classes: a maximum of −∞ that no class reaches."""
        return torch.full_like(like, -torch.inf), torch.zeros_like(like)

    def add(self, state: State, z: Float[Tensor, "n c"], counts: Float[Tensor, "c"] | None = None) -> State:
        """Update the maximum and the number of classes that reach it."""
        peak, count = state
        here = z.amax(-1)
        new = torch.maximum(peak, here)
        ties = (z == new.unsqueeze(-1)).sum(-1).to(count.dtype)
        return new, torch.where(peak == new, count, 0) + ties

    def reduce(self, state: State, reduce: Reduce) -> State:
        """Reduce the maximum, and sum the number of classes that reach it."""
        peak, count = state
        new = reduce(peak, "max")
        return new, reduce(torch.where(peak == new, count, 0), "sum")

    def finish(self, state: State) -> Summary:
        """Return max z and the number of classes that reach it; only the slope uses the number."""
        return state

    def slope(
        self,
        z: Float[Tensor, "n c"],
        summary: Summary,
        gradients: Summary,
        counts: Float[Tensor, "c"] | None = None,
    ) -> Float[Tensor, "n c"]:
        """Return ∂L/∂(max z), shared by the classes that reach the maximum."""
        peak, count = summary
        return (z == peak.unsqueeze(-1)).to(z.dtype) * (gradients[0] / count.clamp_min(1)).unsqueeze(-1)

    def loss(
        self, target: Float[Tensor, "n"], summary: Summary, num_classes: int | Float[Tensor, ""]
    ) -> Float[Tensor, "n"]:
        """Return max(0, gap + max z − t), or its square."""
        missing = (self.gap + summary[0] - target).clamp_min(0)
        return missing if self.power == 1 else missing.square()

    def extra_repr(self) -> str:
        """Return the gap, and the power if it is not 1."""
        return f"gap={self.gap:g}" + (f", power={self.power}" if self.power != 1 else "")
