"""A random network as the projection (6.3.2)."""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ...geometry import normalize
from .random import RandomProjection


class NonlinearProjection(RandomProjection):
    r"""g(v) = h/‖h‖ with h = P₂·tanh(P₁·v̂), a random network of one hidden layer  (6.3, with the nonlinear g of 6.3.2).

    Liu (2020, 6.3.2) mentions multi-layer perceptrons as the simplest nonlinear g and studies only linear ones. P₁ has
    entries from N(0, 1), so the inputs of tanh have the variance 1, where tanh is nonlinear. P₂ has entries from
    N(0, 1/hidden). tanh is odd, so g(−v) = −g(v), as the half-space energy of ±g(v) assumes. Both matrices are redrawn every
    ``every`` steps. Use it to test whether the linearity of a random projection matters.

    Args:
        dim: Dimension of the projected neurons.
        count: Number of networks.
        every: Steps between redraws; None never redraws.
        reduce: Mean or maximum of the energies over the networks.
        hidden: Width of the hidden layer.
        seed: Seed of the networks.

    Raises:
        ValueError: If a number is out of its range.

    >>> NonlinearProjection(dim=20, hidden=64)
    NonlinearProjection(dim=20, count=5, every=1000, reduce='mean', hidden=64)
    """

    arguments = ("dim", "count", "every", "reduce", "hidden")

    def __init__(
        self,
        dim: int = 30,
        count: int = 5,
        every: int | None = 1000,
        reduce: Literal["mean", "max"] = "mean",
        *,
        hidden: int = 128,
        seed: int = 0,
    ):
        super().__init__(dim, count, every, reduce, seed)
        if hidden < 1:
            raise ValueError(f"hidden must be an integer ≥ 1, got {hidden!r}")
        self.hidden = hidden

    def parts(self, neurons: int, dim: int, area: int) -> dict[str, int]:
        """Return the first matrix, which depends on the dimension of the neurons, and the second, which does not."""
        return {"inner": dim, "outer": self.hidden}

    def draw(self, part: str, size: int) -> Float[Tensor, "count _ _"]:
        """Draw ``count`` matrices for vectors of dimension ``size``."""
        rows = self.hidden if part == "inner" else self.dim
        drawn = torch.randn(self.count, rows, size, generator=self.generator)
        return drawn if part == "inner" else drawn / math.sqrt(size)

    def views(self, weights: dict[str, Tensor]) -> dict[str, list[Tensor]]:
        """Return the outputs of the networks for the directions of the neurons.

        Args:
            weights: The neurons of each layer.
        """
        views = {}
        for name, weight in weights.items():
            inner, outer = (self.basis(name, weight, part).unsqueeze(1) for part in ("inner", "outer"))
            views[name] = [torch.tanh(normalize(weight).unsqueeze(0) @ inner.mT) @ outer.mT]
        return views
