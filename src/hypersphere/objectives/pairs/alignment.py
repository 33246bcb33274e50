"""Alignment as a loss: positive pairs together."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from typing_extensions import Unpack

from .pair_blocks import distance
from .pair_loss import PairOptions, SummedPairLoss, check_number


class Alignment(SummedPairLoss):
    r"""mean ‖x̂ − ŷ‖^α over positive pairs.

    Wang and Isola (2020). All features collapse to one point unless :class:`Uniformity` or another loss prevents it.

    Args:
        alpha: α; 2 in Wang and Isola.
        **options: as in :class:`~hypersphere.objectives.pairs.pair_loss.PairLoss`.

    >>> Alignment()(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]), torch.tensor([0, 0, 1]))
    tensor(2.)
    """

    def __init__(self, alpha: float = 2.0, **options: Unpack[PairOptions]):
        super().__init__(**options)
        self.alpha = check_number("alpha", alpha, low=0)

    def terms(
        self, cos: Float[Tensor, "r m"], positive: Bool[Tensor, "r m"], negative: Bool[Tensor, "r m"]
    ) -> Float[Tensor, "terms"]:
        """Return the sum over positive pairs, and their number."""
        pairs = cos[positive]
        if self.alpha == 2:
            power = 2 - 2 * pairs
        else:
            d = distance(pairs)
            apart = d > 0  # the power of 0 may have an infinite slope; the loss of equal features is 0
            power = torch.where(apart, torch.where(apart, d, 1) ** self.alpha, 0)
        return torch.stack([power.sum(), cos.new_tensor(len(pairs))])
