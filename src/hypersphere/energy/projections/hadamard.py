"""Subsampled randomized Hadamard transform (6.5)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from .random import RandomProjection


class HadamardProjection(RandomProjection):
    r"""P = S·H·D: random signs D, the Walsh–Hadamard matrix H, and ``dim`` of its rows S, scaled by 1/√dim.

    P has ``dim`` rows, but at most the next power of two above the dimension of the neurons.

    >>> HadamardProjection(dim=4).draw_one(8).abs().unique()
    tensor([0.5000])
    """

    def draw_one(self, size: int) -> Float[Tensor, "k d"]:
        """Draw rows of H and multiply their columns by random signs."""
        order = 1 << max(size - 1, 1).bit_length()
        rows = torch.randperm(order, generator=self.generator)[: self.dim]
        signs = 2 * torch.randint(2, (size,), generator=self.generator) - 1
        return _parity_signs(rows[:, None] & torch.arange(size)) * signs / math.sqrt(len(rows))


def _parity_signs(bits: Tensor) -> Tensor:
    """Return (−1)^(number of ones): the entry of H at (i, j) for the bits i & j."""
    for shift in (32, 16, 8, 4, 2, 1):
        bits = bits ^ (bits >> shift)
    return 1 - 2 * (bits & 1)
