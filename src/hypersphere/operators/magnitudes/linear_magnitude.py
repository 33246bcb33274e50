"""The magnitudes of LinearConv and of the plain layer."""

import torch
from jaxtyping import Float
from torch import Tensor

from .magnitude import Magnitude, Weighting, check_positive


class Linear(Magnitude):
    r"""h = α‖x‖ (eq. 4.7): weights are normalized, inputs are not. With ``weighted="linear"`` and α = 1 it is :class:`InnerProduct`.

    >>> Linear(alpha=0.5).radial(torch.tensor([0.0, 1.0, 50.0]))
    tensor([ 0.0000,  0.5000, 25.0000])
    """

    homogeneous = True

    def __init__(self, alpha: float = 1.0, *, weighted: Weighting = None):  # α = 1 in C.2
        super().__init__(weighted)
        self.alpha = check_positive("alpha", alpha)

    def radial(self, x_norm: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """Return α‖x‖."""
        return self.alpha * x_norm

    def gain(self, x_norm: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """Return α."""
        return torch.full_like(x_norm, self.alpha)

    def kernel(self, weight: Float[Tensor, "neurons *rest"]) -> Float[Tensor, "neurons *rest"]:
        """Return αŵ, or αw when weighted: the output is this kernel's inner product with the input."""
        kernel = super().kernel(weight)
        return kernel if self.alpha == 1 else self.alpha * kernel


class InnerProduct(Linear):
    r"""h = ‖w‖‖x‖ (eq. 4.2). With the cosine, the outputs equal those of the torch.nn layer bit for bit.

    >>> InnerProduct()(torch.tensor(2.0), torch.tensor([0.0, 1.0, 50.0]))
    tensor([  0.,   2., 100.])
    """

    def __init__(self) -> None:
        super().__init__(weighted="linear")
