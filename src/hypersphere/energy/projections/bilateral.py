"""Bilateral projection (E.6)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from .projection import Projection
from .random import project


class BilateralProjection(Projection):
    r"""E_s of the columns of Y₁ = P₁W plus E_s of the columns of Y₂ = WP₂  (eq. E.20–E.22).

    The columns of W are the neurons. Y₁ contains all neurons, projected to ``rank`` dimensions. Y₂ contains ``rank`` random
    mixtures of the neurons in the original dimension. P₁ and P₂ are Gaussian and are redrawn every ``every`` steps. Layers of
    equal dimension share P₁, and layers with the same number of neurons share P₂.

    >>> BilateralProjection(rank=10)
    BilateralProjection(rank=10, every=1000)
    """

    arguments = ("rank", "every")

    def __init__(self, rank: int = 30, every: int | None = 1000, seed: int = 0):
        super().__init__(every=every, seed=seed)
        if rank < 2:
            raise ValueError(f"rank must be a number ≥ 2, got {rank!r}")
        self.rank = rank

    def parts(self, neurons: int, dim: int, area: int) -> dict[str, int]:
        """Return the dimension as the size of P₁ and the number of neurons as the size of P₂."""
        return {"left": dim, "right": neurons}

    def draw(self, part: str, size: int) -> Float[Tensor, "1 rank size"]:
        """Draw a Gaussian matrix."""
        return torch.randn(1, self.rank, size, generator=self.generator) / math.sqrt(self.rank)

    def views(self, weights: dict[str, Tensor]) -> dict[str, list[Tensor]]:
        """Return the projected neurons and the mixed neurons."""
        return {
            name: [
                project(weight, self.basis(name, weight, "left")),
                (self.basis(name, weight, "right") @ weight).unsqueeze(0),
            ]
            for name, weight in weights.items()
        }
