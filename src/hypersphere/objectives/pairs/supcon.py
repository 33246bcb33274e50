"""The supervised contrastive loss."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from typing_extensions import Unpack

from .pair_blocks import log_sum_exp
from .pair_loss import PairOptions, SummedPairLoss, check_number


class SupCon(SummedPairLoss):
    r"""mean_i −(1/|P(i)|)·Σ_{p∈P(i)} log( e^{cos θ_ip/τ} / Σ_{a≠i} e^{cos θ_ia/τ} ), P(i) the positives of i.

    Khosla et al. (2020), the form with the sum outside the logarithm. The mean is over the samples that have a
    positive.

    Args:
        temperature: τ; 0.1 in Khosla et al.
        **options: as in :class:`~hypersphere.objectives.pairs.pair_loss.PairLoss`.

    >>> SupCon(1.0)(torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0, 1]))  # −log e/(e + 1)
    tensor(0.3133)
    """

    def __init__(self, temperature: float = 0.1, **options: Unpack[PairOptions]):
        super().__init__(**options)
        self.temperature = check_number("temperature", temperature, low=0)

    def terms(
        self, cos: Float[Tensor, "r m"], positive: Bool[Tensor, "r m"], negative: Bool[Tensor, "r m"]
    ) -> Float[Tensor, "terms"]:
        """Return the sum over samples with a positive, and their number."""
        count = positive.sum(1)
        z = cos / self.temperature
        mean = torch.where(positive, z, 0).sum(1) / count.clamp_min(1)
        loss = torch.where(count > 0, log_sum_exp(z, positive | negative) - mean, 0)
        return torch.stack([loss.sum(), (count > 0).sum().to(cos.dtype)])
