"""The normalized, temperature-scaled cross-entropy over pairs."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import Unpack

from .pair_blocks import log_sum_exp
from .pair_loss import PairOptions, SummedPairLoss, check_number


class NTXent(SummedPairLoss):
    r"""Mean over positive pairs (i, p) of −log( e^{cos θ_ip/τ} / (e^{cos θ_ip/τ} + Σ_{n∈N(i)} e^{cos θ_in/τ}) ).

    Each positive is compared only with the negatives N(i), not with other positives (Sohn, 2016; van den Oord et al., 2018;
    Chen et al., 2020). For two concatenated views of n images, the labels are ``torch.arange(n).repeat(2)``. For two
    modalities, pass the second as ``references``; the mean of the losses in both directions is the loss of CLIP.

    Args:
        temperature: τ; 0.07 is usual.
        **options: See :class:`~hypersphere.objectives.pairs.pair_loss.PairLoss`.

    >>> NTXent(1.0)(torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0, 1]))  # −log e/(e + 1)
    tensor(0.3133)
    """

    def __init__(self, temperature: float = 0.07, **options: Unpack[PairOptions]):
        super().__init__(**options)
        self.temperature = check_number("temperature", temperature, low=0)

    def terms(
        self, cos: Float[Tensor, "r m"], positive: Bool[Tensor, "r m"], negative: Bool[Tensor, "r m"]
    ) -> Float[Tensor, "terms"]:
        """Return the sum of the losses of all positive pairs, and the number of these pairs."""
        z = cos / self.temperature
        log_ratio = log_sum_exp(z, negative)[:, None] - z
        loss = torch.where(positive, F.softplus(log_ratio), 0)  # −log(1/(1 + e^log_ratio))
        return torch.stack([loss.sum(), positive.sum().to(cos.dtype)])
