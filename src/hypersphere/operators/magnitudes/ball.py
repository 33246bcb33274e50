"""BallConv's magnitude."""

import torch
from jaxtyping import Float
from torch import Tensor

from .base import Weighting, positive
from .radius import WithRadius


class Ball(WithRadius):
    r"""h = α·min(‖x‖, ρ)/ρ (eq. 4.5, C.2): the input is projected to a ball of radius ρ; bounded by α.

    >>> Ball(radius=2.0).radial(torch.tensor([1.0, 2.0, 50.0]))
    tensor([0.5000, 1.0000, 1.0000])
    """

    def __init__(
        self, alpha: float = 1.0, radius: float = 1.0, *, learnable_radius: bool = False, weighted: Weighting = None
    ):
        super().__init__(radius, learnable_radius, weighted)
        self.alpha = positive("alpha", alpha)

    def radial(self, x_norm: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """α·min(‖x‖/ρ, 1)."""
        return self.alpha * (x_norm / self.radius(x_norm, dim)).clamp_max(1)

    def gain(self, x_norm: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """α/max(‖x‖, ρ)."""
        return self.alpha / torch.maximum(x_norm, self.radius(x_norm, dim))
