"""Random projection (6.3.3)."""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from .projection import Projection


class RandomProjection(Projection):
    r"""g(v) = Pv/‖Pv‖ with Gaussian P, the energy being the mean or the maximum over ``count`` of them  (eq. 6.4, 6.5).

    The best of Liu (2020, 6.6.1) are 30 dimensions and 5 projections. Redrawing every 1, 200 or 1000 steps does equally well and
    never redrawing does not (table E.4). P has entries N(0, 1/dim), so inner products are kept in the mean (lemma 3).

    >>> RandomProjection(dim=20, reduce="max")
    RandomProjection(dim=20, count=5, every=1000, reduce='max')
    """

    def __init__(
        self,
        dim: int = 30,
        count: int = 5,
        every: int | None = 1000,
        reduce: Literal["mean", "max"] = "mean",
        seed: int = 0,
    ):
        super().__init__(every=every, reduce=reduce, seed=seed)
        for name, value in (("dim", dim), ("count", count)):
            if value < 1 + (name == "dim"):
                raise ValueError(f"{name} must be a number ≥ {1 + (name == 'dim')}, got {value!r}")
        self.dim, self.count = dim, count

    def parts(self, neurons: int, dim: int, area: int) -> dict[str, int]:
        """Return one basis for each dimension of neurons."""
        return {"basis": dim}

    def draw(self, part: str, size: int) -> Float[Tensor, "count k d"]:
        """Draw ``count`` bases for neurons of dimension ``size``."""
        return torch.stack([self.draw_one(size) for _ in range(self.count)])

    def draw_one(self, size: int) -> Float[Tensor, "k d"]:
        """Draw one basis, here a Gaussian one."""
        return torch.randn(self.dim, size, generator=self.generator) / math.sqrt(self.dim)

    def views(self, weights: dict[str, Tensor]) -> dict[str, list[Tensor]]:
        """Return the projected neurons, of all bases by one product."""
        return {name: [project(weight, self.basis(name, weight))] for name, weight in weights.items()}

    def extra_repr(self) -> str:
        """Return the constructor's arguments."""
        return f"dim={self.dim}, count={self.count}, every={self.every}, reduce={self.reduce!r}"


def project(
    weight: Float[Tensor, "groups neurons d"], basis: Float[Tensor, "count k d"]
) -> Float[Tensor, "count groups neurons k"]:
    """Return P_c·w for every basis and neuron.

    >>> project(torch.ones(1, 4, 6), torch.ones(5, 2, 6)).shape
    torch.Size([5, 1, 4, 2])
    """
    projected = weight @ basis.flatten(0, 1).mT
    return projected.unflatten(-1, basis.shape[:2]).permute(2, 0, 1, 3)
