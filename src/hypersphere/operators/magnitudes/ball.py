"""BallConv's magnitude."""

import torch
from jaxtyping import Float
from torch import Tensor

from .radius import WithRadius


class Ball(WithRadius):
    r"""h = α·min(‖x‖, ρ)/ρ (eq. 4.5, C.2): the input is projected onto a ball of radius ρ. The values are at most α.

    Args:
        alpha: Height α, 1 in C.2 of Liu (2020).
        radius: ρ, or its initial value if it is learned, 1 in C.1–C.3.
        learnable_radius: Whether every neuron learns a ρ that multiplies the mean patch norm (:class:`Radius`), as in
            Liu (2020).
        weighted: How h depends on ‖w‖ (4.3.5); None if it does not.

    >>> Ball(radius=2.0, learnable_radius=False).radial(torch.tensor([1.0, 2.0, 50.0]))
    tensor([0.5000, 1.0000, 1.0000])
    """

    def radial(self, x_norm: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """Return α·min(‖x‖/ρ, 1)."""
        return self.alpha * (x_norm / self.radius(x_norm, dim)).clamp_max(1)

    def gain_within(self, x_norm: Float[Tensor, "..."], radius: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return α/max(‖x‖, ρ)."""
        return self.alpha / torch.maximum(x_norm, radius)

    def radius_slope(
        self, x_norm: Float[Tensor, "..."], radius: Float[Tensor, "..."], gain: Float[Tensor, "..."]
    ) -> Float[Tensor, "..."]:
        """Return −α/ρ up to ρ and 0 beyond; half of −α/ρ at ρ, as autograd does for torch.maximum."""
        return torch.sign(radius - x_norm).add_(1).mul_(gain).mul_(-0.5)
