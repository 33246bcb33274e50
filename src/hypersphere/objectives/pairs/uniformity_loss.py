"""Uniformity as a loss: all features spread over the sphere."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from typing_extensions import Unpack

from .pair_loss import PairOptions, SummedPairLoss, check_number


class Uniformity(SummedPairLoss):
    r"""log mean_{i≠j} e^{−t·‖x̂_i − x̂_j‖²} over all pairs, regardless of their labels.

    Wang and Isola (2020), the counterpart of :class:`Alignment`. Its values are between −4t (all pairs antipodal) and 0 (all
    features equal). The loss of fewer than two samples is 0.

    Args:
        t: the sharpness; 2 in Wang and Isola.
        **options: as in :class:`~hypersphere.objectives.pairs.pair_loss.PairLoss`.

    >>> Uniformity()(torch.eye(3))
    tensor(-4.0000)
    """

    needs_labels = False

    def __init__(self, t: float = 2.0, **options: Unpack[PairOptions]):
        super().__init__(**options)
        self.t = check_number("t", t, low=0)

    def terms(
        self, cos: Float[Tensor, "r m"], positive: Bool[Tensor, "r m"], negative: Bool[Tensor, "r m"]
    ) -> Float[Tensor, "terms"]:
        """Return the sum of e^{−t·‖x̂ − ŷ‖²} over all pairs, and their number."""
        pairs = positive | negative
        potential = torch.where(pairs, torch.exp(2 * self.t * (cos - 1)), 0)
        return torch.stack([potential.sum(), pairs.sum().to(cos.dtype)])

    def combine(self, totals: Float[Tensor, "terms"]) -> Float[Tensor, ""]:
        """Return the logarithm of the mean."""
        some = totals[1] > 0
        mean = totals[0] / totals[1].clamp_min(1)
        return torch.where(some, torch.where(some, mean, 1).clamp_min(torch.finfo(mean.dtype).tiny).log(), 0)
