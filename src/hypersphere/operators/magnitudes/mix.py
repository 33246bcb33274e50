"""The magnitude of MixConv."""

import torch
from jaxtyping import Float
from torch import Tensor

from .log_magnitude import log_slope
from .magnitude import Magnitude, Weighting, check_not_negative, check_positive


class Mix(Magnitude):
    r"""h = α‖x‖ + β·log(1 + ‖x‖) (eq. 4.10): the sum of the magnitudes of LinearConv and LogConv.

    Args:
        alpha: Factor α of the linear term, 1 in C.2 of Liu (2020).
        beta: Factor β of the logarithmic term, 1 in C.2.
        weighted: How h depends on ‖w‖ (4.3.5); None if it does not.

    >>> Mix(alpha=0.5, beta=2.0).radial(torch.tensor([0.0, 1.0]))
    tensor([0.0000, 1.8863])
    """

    def __init__(self, alpha: float = 1.0, beta: float = 1.0, *, weighted: Weighting = None):
        super().__init__(weighted)
        self.alpha, self.beta = check_positive("alpha", alpha), check_not_negative("beta", beta)

    def radial(self, x_norm: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """Return α‖x‖ + β·log(1 + ‖x‖)."""
        return self.alpha * x_norm + self.beta * torch.log1p(x_norm)

    def gain(self, x_norm: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """Return h/‖x‖ = α + β·log(1 + ‖x‖)/‖x‖."""
        return self.alpha + self.beta * log_slope(x_norm)
