"""The Kozachenko–Leonenko regularizer, which moves features away from their nearest neighbors."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from typing_extensions import Unpack

from ...geometry import norm, normalize
from .pair_blocks import MIN_NORM, choose_block_rows, make_zero_loss
from .pair_loss import PairLoss, PairOptions, check_number


class KoLeo(PairLoss):
    r"""−mean_i log(min_{j≠i} ‖x̂_i − x̂_j‖ + ε).

    It moves each feature away from its nearest neighbor and ignores labels (Sablayrolles et al., 2019; Oquab et al., 2023). The
    neighbor is found by the cosine. Its distance is the norm of the difference of the two directions, which is accurate even
    if the cosine rounds to 1. Both features receive a gradient.

    Args:
        eps: ε, which keeps the loss of duplicates finite; their gradient is 0. It is 1e-8 in Oquab et al.
        **options: as in :class:`~hypersphere.objectives.pairs.pair_loss.PairLoss`.

    >>> KoLeo()(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]))  # −log √2
    tensor(-0.3466)
    """

    needs_labels = False

    def __init__(self, eps: float = 1e-8, **options: Unpack[PairOptions]):
        super().__init__(**options)
        self.eps = check_number("eps", eps, low=0)

    def compare(
        self,
        x: Float[Tensor, "n d"],
        labels: Int[Tensor, "n"],
        references: Float[Tensor, "m d"],
        reference_labels: Int[Tensor, "m"],
        own: Int[Tensor, "n"] | None,
    ) -> Float[Tensor, ""]:
        """Return the mean over the samples of all processes, or 0 for fewer than two samples."""
        if len(references) <= (own is not None):
            return make_zero_loss(x, references)
        rows, others = normalize(x, min_norm=MIN_NORM), normalize(references, min_norm=MIN_NORM)
        nearest = self._find_nearest(rows.detach(), others.detach(), own)
        logs = (norm(rows - others[nearest]) + self.eps).log()
        total, count = self.sum_processes(torch.stack([logs.sum(), logs.new_tensor(len(logs))]))
        return -total / count.clamp_min(1)

    @torch.no_grad()
    def _find_nearest(self, rows: Tensor, others: Tensor, own: Tensor | None) -> Int[Tensor, "n"]:
        """Return the index of each row's nearest neighbor, the first one of a tie."""
        size = choose_block_rows(self.chunk, len(rows), len(others), rows.device)
        nearest = []
        for start in range(0, max(len(rows), 1), size):
            cos = rows[start : start + size] @ others.T
            if own is not None:
                cos.scatter_(1, own[start : start + size, None], -2.0)
            nearest.append(cos.argmax(1))
        return torch.cat(nearest)
