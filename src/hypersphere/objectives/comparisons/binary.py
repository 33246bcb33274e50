"""One binary classification problem per class."""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from .comparison_loss import Comparison, Reduce, State, Summary


class Binary(Comparison):
    r"""p·softplus(−t) + q·Σ_j softplus(z_j): a binary cross-entropy per class, as in SphereFace2 and UniFace.

    The state is one sum, because the probability of a class does not depend on the other classes. ``positive`` p is the weight of
    the target class and ``negative`` q that of each other class. softplus(z) is computed as −log σ(−z), which is accurate for
    every z.

    >>> binary = Binary(positive=0.5, negative=2.0)
    >>> summary = binary.finish(binary.add(binary.start(torch.zeros(1)), torch.tensor([[0.0, -30.0]])))
    >>> binary.loss(torch.tensor([0.0]), summary, 3)
    tensor([1.7329])
    """

    def __init__(self, positive: float = 1.0, negative: float = 1.0):
        super().__init__()
        if not (0 < positive < math.inf and 0 < negative < math.inf):
            raise ValueError(f"positive and negative must be positive numbers, got {positive!r} and {negative!r}")
        self.positive, self.negative = float(positive), float(negative)

    def start(self, like: Float[Tensor, "n"]) -> State:
        """Return the empty sum."""
        return (torch.zeros_like(like),)

    def add(self, state: State, z: Float[Tensor, "n c"], counts: Float[Tensor, "c"] | None = None) -> State:
        """Add Σ softplus(z) of this block."""
        terms = F.logsigmoid(-z)
        return (state[0] - (terms if counts is None else terms * counts).sum(-1),)

    def reduce(self, state: State, reduce: Reduce) -> State:
        """Sum over the processes."""
        return (reduce(state[0], "sum"),)

    def finish(self, state: State) -> Summary:
        """Return Σ softplus(z)."""
        return state

    def slope(
        self,
        z: Float[Tensor, "n c"],
        summary: Summary,
        gradients: Summary,
        counts: Float[Tensor, "c"] | None = None,
    ) -> Float[Tensor, "n c"]:
        """Return σ(z)·∂L/∂S."""
        d = torch.sigmoid(z).mul_(gradients[0].unsqueeze(-1))
        return d if counts is None else d.mul_(counts)

    def loss(
        self, target: Float[Tensor, "n"], summary: Summary, num_classes: int | Float[Tensor, ""]
    ) -> Float[Tensor, "n"]:
        """Return p·softplus(−t) + q·Σ softplus(z)."""
        return -self.positive * F.logsigmoid(target) + self.negative * summary[0]

    def loss_with_slopes(
        self, target: Float[Tensor, "n"], summary: Summary, num_classes: int | Float[Tensor, ""]
    ) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"], Summary]:
        """Return the loss with the slopes −p·σ(−t) by t and q by the sum."""
        by_target = torch.sigmoid(-target).mul_(-self.positive)
        return self.loss(target, summary, num_classes), by_target, (torch.full_like(target, self.negative),)

    def extra_repr(self) -> str:
        """Return the two weights."""
        return f"positive={self.positive:g}, negative={self.negative:g}"
