"""SphereConv's magnitude."""

import torch
from jaxtyping import Float
from torch import Tensor

from ...geometry.fast_norms import bounded_inverse
from .magnitude import Magnitude, Weighting, check_positive


class Sphere(Magnitude):
    r"""h = α (eq. 4.4): the input is projected onto the sphere. The output depends only on the angle and lies in [−α, α].

    >>> Sphere(alpha=2.0).radial(torch.tensor([0.1, 1.0, 50.0]))
    tensor([2., 2., 2.])
    """

    def __init__(self, alpha: float = 1.0, *, weighted: Weighting = None):  # α = 1 in C.2
        super().__init__(weighted)
        self.alpha = check_positive("alpha", alpha)

    def radial(self, x_norm: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """Return α."""
        return torch.full_like(x_norm, self.alpha)

    def gain(self, x_norm: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """Return α/‖x‖."""
        return self.alpha * bounded_inverse(x_norm)
