"""Random projection (section 6.3.3)."""

import math
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from .projection import Projection


class RandomProjection(Projection):
    r"""g(v) = Pv/‖Pv‖ with Gaussian P; the energy is the mean or the maximum over ``count`` matrices P (eq. 6.4, 6.5).

    Liu (2020, 6.6.1) reports the best results for 30 dimensions and 5 projections. Redrawing P every 1, 200 or 1000 steps
    works equally well; never redrawing it is worse (table E.4). The entries of P have the distribution N(0, 1/dim), so
    inner products are preserved in expectation (lemma 3).

    >>> RandomProjection(dim=20, reduce="max")
    RandomProjection(dim=20, count=5, every=1000, reduce='max')
    """

    arguments: ClassVar[tuple[str, ...]] = ("dim", "count", "every", "reduce")

    def __init__(
        self,
        dim: int = 30,
        count: int = 5,
        every: int | None = 1000,
        reduce: Literal["mean", "max"] = "mean",
        seed: int = 0,
    ):
        super().__init__(every=every, reduce=reduce, seed=seed)
        for name, value, minimum in (("dim", dim, 2), ("count", count, 1)):
            if value < minimum:
                raise ValueError(f"{name} must be a number ≥ {minimum}, got {value!r}")
        self.dim, self.count = dim, count

    def parts(self, neurons: int, dim: int, area: int) -> dict[str, int]:
        """Return the size of ``"basis"``, the projection matrices that all layers with neurons of this dimension share."""
        return {"basis": dim}

    def draw(self, part: str, size: int) -> Float[Tensor, "count k d"]:
        """Draw ``count`` projection matrices for neurons of dimension ``size``."""
        return torch.stack([self.draw_one(size) for _ in range(self.count)])

    def draw_one(self, size: int) -> Float[Tensor, "k d"]:
        """Draw one Gaussian projection matrix."""
        return torch.randn(self.dim, size, generator=self.generator) / math.sqrt(self.dim)

    def views(self, weights: dict[str, Tensor]) -> dict[str, list[Tensor]]:
        """Return the neurons of each layer, projected by all matrices in one product."""
        return {name: [project(weight, self.basis(name, weight))] for name, weight in weights.items()}


def project(
    weight: Float[Tensor, "groups neurons d"], basis: Float[Tensor, "count k d"]
) -> Float[Tensor, "count groups neurons k"]:
    """Return P_c·w for every projection matrix P_c and neuron w.

    >>> project(torch.ones(1, 4, 6), torch.ones(5, 2, 6)).shape
    torch.Size([5, 1, 4, 2])
    """
    projected = weight @ basis.flatten(0, 1).mT
    return projected.unflatten(-1, basis.shape[:2]).permute(2, 0, 1, 3)
