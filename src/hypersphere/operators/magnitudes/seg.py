"""SegConv's magnitude."""

import torch
from jaxtyping import Float
from torch import Tensor

from .magnitude import Weighting, check_not_negative
from .radius import WithRadius


class Seg(WithRadius):
    r"""h = α‖x‖ up to ρ, then β‖x‖ + (α − β)ρ (eq. 4.8, C.3): two slopes that meet at ρ.

    β = 0 with α = a/ρ is :class:`Ball` of height a; β = α is :class:`Linear`.

    Args:
        alpha: Slope α up to ρ, 1 in C.2 of Liu (2020).
        beta: Slope β beyond ρ, 0.5 in C.2.
        radius: ρ, or its initial value if it is learned, 1 in C.1–C.3.
        learnable_radius: Whether every neuron learns a ρ that multiplies the mean patch norm (:class:`Radius`), as in
            Liu (2020).
        weighted: How h depends on ‖w‖ (4.3.5); None if it does not.

    >>> Seg(beta=0.5, radius=2.0, learnable_radius=False).radial(torch.tensor([1.0, 2.0, 4.0]))
    tensor([1., 2., 3.])
    """

    degree = 0

    def __init__(
        self,
        alpha: float = 1.0,
        beta: float = 0.5,  # α = 1, β = 0.5 in C.2
        radius: float = 1.0,
        *,
        learnable_radius: bool = True,
        weighted: Weighting = None,
    ):
        super().__init__(alpha, radius, learnable_radius=learnable_radius, weighted=weighted)
        self.beta = check_not_negative("beta", beta)

    def radial(self, x_norm: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """Return β‖x‖ + (α − β)·min(‖x‖, ρ)."""
        return self.beta * x_norm + (self.alpha - self.beta) * torch.minimum(x_norm, self.radius(x_norm, dim))

    def gain_within(self, x_norm: Float[Tensor, "..."], radius: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return β + (α − β)·ρ/max(‖x‖, ρ)."""
        return self.beta + (self.alpha - self.beta) * (radius / torch.maximum(x_norm, radius))

    def radius_slope(
        self, x_norm: Float[Tensor, "..."], radius: Float[Tensor, "..."], gain: Float[Tensor, "..."]
    ) -> Float[Tensor, "..."]:
        """Return 0 up to ρ and (α − β)·ρ/‖x‖ beyond; half of that at ρ, as autograd does for torch.maximum."""
        return torch.sign(x_norm - radius).add_(1).mul_(0.5).mul_(gain - self.beta)
