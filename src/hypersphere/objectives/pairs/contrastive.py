"""The contrastive loss: positives together, negatives beyond a margin."""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from typing_extensions import Unpack

from .pair_blocks import distance
from .pair_loss import PairOptions, SummedPairLoss, check_number


class Contrastive(SummedPairLoss):
    r"""mean max(0, d − m₊)^p over positive pairs + mean max(0, m₋ − d)^p over negative pairs.

    d = ‖x̂ − ŷ‖ = √(2 − 2cos θ). Hadsell, Chopra and LeCun (2006), a baseline of Liu (2020; 2.1, tables 2.9, 5.10),
    on the sphere.

    Args:
        positive_margin: m₊, the distance below which a positive pair is near enough; 0 in Hadsell et al.
        negative_margin: m₋, the distance beyond which a negative pair is far enough; 1 is an angle of 60°.
        power: p; 2 is that of Hadsell et al. (who halve both terms), 1 that of pytorch-metric-learning.
        average: over the pairs with a loss above 0 (``"nonzero"``), or over all pairs (``"all"``).
        **options: as in :class:`~hypersphere.objectives.pairs.pair_loss.PairLoss`.

    >>> x, labels = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]), torch.tensor([0, 0, 1])
    >>> Contrastive()(x, labels)  # 2 + ((1 − √.8)² + (1 − √.4)²)/2
    tensor(2.0731)
    """

    def __init__(
        self,
        positive_margin: float = 0.0,
        negative_margin: float = 1.0,
        power: Literal[1, 2] = 2,
        average: Literal["nonzero", "all"] = "nonzero",
        **options: Unpack[PairOptions],
    ):
        super().__init__(**options)
        self.positive_margin = check_number("positive_margin", positive_margin, low=0, inclusive=True)
        self.negative_margin = check_number("negative_margin", negative_margin, low=0)
        if power not in (1, 2):
            raise ValueError(f"power must be 1 or 2, got {power!r}")
        self.power, self.average = power, check_average(average)

    def terms(
        self, cos: Float[Tensor, "r m"], positive: Bool[Tensor, "r m"], negative: Bool[Tensor, "r m"]
    ) -> Float[Tensor, "terms"]:
        """Sum and count of the positive pairs, sum and count of the negative ones."""
        # Only few negative pairs are nearer than the margin, so compute only their distances.
        near = negative & (cos.detach() > self.similarity_at(self.negative_margin))
        attracted = (self.distance_of(cos[positive]) - self.positive_margin).relu()
        repelled = (self.negative_margin - self.distance_of(cos[near])).relu()
        sums = []
        for excess, pairs in ((attracted, positive), (repelled, negative)):
            count = (excess > 0 if self.average == "nonzero" else pairs).sum()
            sums += [(excess * excess if self.power == 2 else excess).sum(), count.to(cos.dtype)]
        return torch.stack(sums)

    def distance_of(self, similarity: Float[Tensor, "k"]) -> Float[Tensor, "k"]:
        """Return the distances of pairs from their similarities."""
        return distance(similarity)

    def similarity_at(self, distance: float) -> float:
        """Return the similarity of two samples at this distance."""
        return 1 - distance**2 / 2

    def combine(self, totals: Float[Tensor, "terms"]) -> Float[Tensor, ""]:
        """Add the two means."""
        return totals[0] / totals[1].clamp_min(1) + totals[2] / totals[3].clamp_min(1)


def check_average(average: Literal["nonzero", "all"]) -> Literal["nonzero", "all"]:
    """Return the argument if it is valid; raise a ValueError otherwise."""
    if average not in ("nonzero", "all"):
        raise ValueError(f'average must be "nonzero" or "all", got {average!r}')
    return average
