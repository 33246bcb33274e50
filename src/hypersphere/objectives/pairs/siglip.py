"""The sigmoid loss over pairs."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import Unpack

from .pair_loss import PairOptions, SummedPairLoss, check_number


class SigLIP(SummedPairLoss):
    r"""mean_i Σ_j log(1 + e^{−z_ij·(t·cos θ_ij + b)}), z = 1 for positive pairs and −1 for negative ones.

    Zhai et al. (2023): every pair is a binary classification. t = exp(``log_scale``) and b = ``bias`` are learned.
    For images and texts pass the texts as ``references``. Within one set of samples, no sample is paired with itself.

    Args:
        scale: t at the start; 10 in Zhai et al.
        bias: b at the start; −10 in Zhai et al., as nearly all pairs are negative.
        **options: as in :class:`~hypersphere.objectives.pairs.pair_loss.PairLoss`.

    >>> loss = SigLIP(scale=1.0, bias=0.0)
    >>> loss(torch.eye(2), torch.arange(2), torch.eye(2), torch.arange(2))  # log(1 + 1/e) + log 2
    tensor(1.0064, grad_fn=<DivBackward0>)
    """

    def __init__(self, scale: float = 10.0, bias: float = -10.0, **options: Unpack[PairOptions]):
        super().__init__(**options)
        if not math.isfinite(bias):
            raise ValueError(f"bias must be a finite number, got {bias!r}")
        self.log_scale = nn.Parameter(torch.tensor(math.log(check_number("scale", scale, low=0))))
        self.bias = nn.Parameter(torch.tensor(float(bias)))

    def terms(
        self, cos: Float[Tensor, "r m"], positive: Bool[Tensor, "r m"], negative: Bool[Tensor, "r m"]
    ) -> Float[Tensor, "terms"]:
        """Return the sum over all pairs, and the number of rows."""
        z = self.log_scale.to(cos.dtype).exp() * cos + self.bias.to(cos.dtype)
        loss = F.softplus(torch.where(positive, -z, z))
        return torch.stack([torch.where(positive | negative, loss, 0).sum(), cos.new_tensor(len(cos))])

    def extra_repr(self) -> str:
        """Return the learned scale and bias."""
        return f"scale={self.log_scale.exp().item():.4g}, bias={self.bias.item():.4g}"
