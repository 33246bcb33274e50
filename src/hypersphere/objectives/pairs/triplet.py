"""The triplet loss with its three kinds of mining, without ever listing triplets."""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from typing_extensions import Unpack

from .contrastive import check_average
from .pair_blocks import distance
from .pair_loss import PairOptions, SummedPairLoss, check_number


class Triplet(SummedPairLoss):
    r"""mean max(0, d_ap − d_an + m) over anchors a, positives p and negatives n, d = ‖x̂ − ŷ‖ (or its square).

    Schroff, Kalenichenko and Philbin (2015), a baseline of Liu (2020; 2.1, tables 2.9, 5.10), on the sphere.

    Args:
        margin: m; 0.2 in Schroff et al.
        mining: ``"all"`` takes every triplet (Hermans et al., 2017, "batch all"). ``"hard"`` takes for each anchor
            its farthest positive and its nearest negative ("batch hard"). ``"semihard"`` takes every triplet whose
            negative is farther than the positive, but by less than the margin (Schroff et al.).
        squared: whether d is the squared distance 2 − 2cos θ, as in Schroff et al.
        average: over the triplets with a loss above 0 (``"nonzero"``), or over all triplets of the mining (``"all"``).
        **options: as in :class:`~hypersphere.objectives.pairs.pair_loss.PairLoss`.

    The triplets of an anchor are summed from sorted distances and need only the memory of pairs. Let d_1 ≤ d_2 ≤ … be the
    distances of the negatives. A positive at the distance d has k = #{d_n < d + m} triplets with a loss above 0, and they sum
    to k·(d + m) − (d_1 + … + d_k).

    >>> x, y = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]), torch.tensor([0, 0, 1])
    >>> Triplet(squared=True)(x, y)  # 2 − 0.8 + 0.2 and 2 − 0.4 + 0.2
    tensor(1.6000)
    """

    similarity_bound: float = 2.0
    """A number that is larger than the absolute value of any similarity."""

    def __init__(
        self,
        margin: float = 0.2,
        mining: Literal["all", "hard", "semihard"] = "all",
        squared: bool = False,
        average: Literal["nonzero", "all"] = "nonzero",
        **options: Unpack[PairOptions],
    ):
        super().__init__(**options)
        self.margin = check_number("margin", margin, low=0)
        if mining not in ("all", "hard", "semihard"):
            raise ValueError(f'mining must be "all", "hard" or "semihard", got {mining!r}')
        self.mining, self.squared, self.average = mining, squared, check_average(average)

    def terms(
        self, cos: Float[Tensor, "r m"], positive: Bool[Tensor, "r m"], negative: Bool[Tensor, "r m"]
    ) -> Float[Tensor, "terms"]:
        """Return the sum over the triplets of these anchors, and their number."""
        if self.mining == "hard":
            return self._sum_hardest(cos, positive, negative)
        d = self._compute_distance(cos)
        most = int(positive.sum(1).max()) if len(cos) else 0
        if most == 0:
            return torch.stack([d[:0].sum(), d.new_zeros(())])
        # The columns of the positives. Rows with fewer positives also get other columns, which do not count.
        column = positive.to(torch.uint8).topk(most, dim=1).indices
        is_positive = positive.gather(1, column)
        limit = d.gather(1, column) + self.margin
        ranked = torch.where(negative, d, torch.inf).sort(dim=1).values
        below = torch.cat([d.new_zeros(len(d), 1), torch.where(ranked.isfinite(), ranked, 0).cumsum(1)], dim=1)
        last = torch.searchsorted(ranked.detach(), limit.detach())
        count, total = last, below.gather(1, last)
        if self.mining == "semihard":
            first = torch.searchsorted(ranked.detach(), limit.detach() - self.margin, right=True)
            first = torch.minimum(first, last)
            count, total = last - first, total - below.gather(1, first)
        loss = torch.where(is_positive, count * limit - total, 0).sum()
        if self.average == "all" and self.mining == "all":
            count = negative.sum(1, keepdim=True).expand_as(count)
        return torch.stack([loss, torch.where(is_positive, count, 0).sum().to(cos.dtype)])

    def _sum_hardest(self, cos: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        farthest = torch.where(positive, cos, self.similarity_bound).amin(1)
        nearest = torch.where(negative, cos, -self.similarity_bound).amax(1)
        has_triplet = positive.any(1) & negative.any(1)
        excess = self._compute_distance(farthest) - self._compute_distance(nearest) + self.margin
        active = has_triplet & (excess > 0)
        count = (active if self.average == "nonzero" else has_triplet).sum()
        return torch.stack([torch.where(active, excess, 0).sum(), count.to(cos.dtype)])

    def _compute_distance(self, cos: Tensor) -> Tensor:
        return 2 - 2 * cos if self.squared else distance(cos)
