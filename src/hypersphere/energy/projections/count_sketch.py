"""Count sketch (section 6.5)."""

import torch
from jaxtyping import Float
from torch import Tensor

from .random import RandomProjection


class CountSketch(RandomProjection):
    r"""Random projection by a count sketch: P has one entry ±1 in each column, in a random row.

    Each coordinate is multiplied by a random sign and added to one of ``dim`` random buckets.

    >>> CountSketch(dim=4).draw_one(6).abs().sum(0)
    tensor([1., 1., 1., 1., 1., 1.])
    """

    def draw_one(self, size: int) -> Float[Tensor, "k d"]:
        """Draw one matrix P: a random bucket and a random sign for each coordinate."""
        buckets = torch.randint(self.dim, (1, size), generator=self.generator)
        signs = 2.0 * torch.randint(2, (1, size), generator=self.generator) - 1
        return torch.zeros(self.dim, size).scatter_(0, buckets, signs)
