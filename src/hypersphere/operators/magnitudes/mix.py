"""MixConv's magnitude."""

import torch
from jaxtyping import Float
from torch import Tensor

from .log_magnitude import log_slope
from .magnitude import Magnitude, Weighting, check_not_negative, check_positive


class Mix(Magnitude):
    r"""h = α‖x‖ + β·log(1 + ‖x‖) (eq. 4.10): LinearConv and LogConv together.

    >>> Mix(alpha=0.5, beta=2.0).radial(torch.tensor([0.0, 1.0]))
    tensor([0.0000, 1.8863])
    """

    def __init__(self, alpha: float = 1.0, beta: float = 1.0, *, weighted: Weighting = None):  # α = β = 1 in C.2
        super().__init__(weighted)
        self.alpha, self.beta = check_positive("alpha", alpha), check_not_negative("beta", beta)

    def radial(self, x_norm: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """Return α‖x‖ + β·log(1 + ‖x‖)."""
        return self.alpha * x_norm + self.beta * torch.log1p(x_norm)

    def gain(self, x_norm: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """Return α + β·log(1 + ‖x‖)/‖x‖."""
        return self.alpha + self.beta * log_slope(x_norm)
