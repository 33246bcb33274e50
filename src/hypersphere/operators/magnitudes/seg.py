"""SegConv's magnitude."""

import torch
from jaxtyping import Float
from torch import Tensor

from .base import Weighting, not_negative, positive
from .radius import WithRadius


class Seg(WithRadius):
    r"""h = α‖x‖ up to ρ, then β‖x‖ + (α − β)ρ (eq. 4.8, C.3): two slopes that meet at ρ.

    β = 0 with α = a/ρ is :class:`Ball` of height a; β = α is :class:`Linear`.

    >>> Seg(beta=0.5, radius=2.0).radial(torch.tensor([1.0, 2.0, 4.0]))
    tensor([1., 2., 3.])
    """

    def __init__(
        self,
        alpha: float = 1.0,
        beta: float = 0.5,  # α = 1, β = 0.5 in C.2
        radius: float = 1.0,
        *,
        learnable_radius: bool = False,
        weighted: Weighting = None,
    ):
        super().__init__(radius, learnable_radius, weighted)
        self.alpha, self.beta = positive("alpha", alpha), not_negative("beta", beta)

    def radial(self, x_norm: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """β‖x‖ + (α − β)·min(‖x‖, ρ)."""
        return self.beta * x_norm + (self.alpha - self.beta) * torch.minimum(x_norm, self.radius(x_norm, dim))

    def gain(self, x_norm: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """β + (α − β)·ρ/max(‖x‖, ρ)."""
        radius = self.radius(x_norm, dim)
        return self.beta + (self.alpha - self.beta) * (radius / torch.maximum(x_norm, radius))
