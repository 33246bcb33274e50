"""The magnitude of LogConv."""

import torch
from jaxtyping import Float
from torch import Tensor

from ...geometry.fast_norms import MIN_NORM
from .magnitude import Magnitude, Weighting, check_positive


class Log(Magnitude):
    r"""h = α·log(1 + ‖x‖) (eq. 4.9), unbounded but slowly increasing.

    >>> Log().radial(torch.tensor([0.0, 1.0, torch.e - 1]))
    tensor([0.0000, 0.6931, 1.0000])
    """

    def __init__(self, alpha: float = 1.0, *, weighted: Weighting = None):  # α = 1 in C.2
        super().__init__(weighted)
        self.alpha = check_positive("alpha", alpha)

    def radial(self, x_norm: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """Return α·log(1 + ‖x‖)."""
        return self.alpha * torch.log1p(x_norm)

    def gain(self, x_norm: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """Return α·log(1 + ‖x‖)/‖x‖, which is α at 0."""
        return self.alpha * log_slope(x_norm)


def log_slope(x_norm: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return log(1 + ‖x‖)/‖x‖, which is 1 at 0."""
    x_norm = x_norm.clamp_min(MIN_NORM)
    return torch.log1p(x_norm) / x_norm
