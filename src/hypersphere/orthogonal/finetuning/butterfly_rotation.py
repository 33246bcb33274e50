"""Rotations as products of butterfly-permuted block-diagonal factors (BOFT)."""

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...geometry import accumulation_dtype, disable_autocast
from .block_rotation import rotate_blocks, skew_cayley
from .rotation import Rotation

if TYPE_CHECKING:
    from .tuning_method import TuningMethod


class ButterflyRotation(Rotation):
    r"""R = B_m ⋯ B_2 B_1 (BOFT; Liu et al., 2024): each B_i block-diagonal after a butterfly permutation.

    Divide the n numbers into half blocks. A block of the factor i = 1, 2, … mixes two half blocks whose distance is
    2^{i−1}, as in the fast Fourier transform. After m factors every number depends on 2^m half blocks, with m times the
    parameters of one factor. Every block is a Cayley transform as in OFT, and m = 1 is OFT.
    """

    def __init__(
        self, method: "TuningMethod", parts: int, n: int, like: Tensor, generator: torch.Generator | None = None
    ):
        super().__init__(method, parts, n, like, generator)
        (self.block, self.factors), self.terms = method.choose_block(n), method.terms
        self.entries = self.block * (self.block - 1) // 2
        shape = (self.factors, parts, n // self.block, self.entries)
        self.raw = nn.Parameter(torch.zeros(shape, dtype=accumulation_dtype(like), device=like.device))

    @classmethod
    def describe(cls, method: "TuningMethod", n: int) -> str:
        """Describe the blocks and the factors."""
        block, factors = method.choose_block(n)
        return f"block {block}, {factors} factors"

    @property
    def cost(self) -> int:
        """The size of a block times the number of factors."""
        return self.block * self.factors

    def forward(self, rows: Float[Tensor, "parts m n"], transpose: bool = False) -> Float[Tensor, "parts m n"]:
        """Return R v or Rᵀ v for every row v."""
        with disable_autocast(rows.device.type):
            r = skew_cayley(self.raw.to(accumulation_dtype(self.raw)), self.block, self.terms)
            result = rows.to(r.dtype)
            for i in reversed(range(self.factors)) if transpose else range(self.factors):
                gathered = self._gather(result, 1 << i) if i else result  # neighbors are adjacent already
                rotated = rotate_blocks(gathered, r[i] if transpose else r[i].mT)
                result = self._scatter(rotated, 1 << i) if i else rotated
            return result.to(rows.dtype)

    def _gather(self, rows: Tensor, distance: int) -> Tensor:
        """Reorder the numbers so that half blocks at this distance become adjacent."""
        half_blocks = rows.unflatten(-1, (-1, 2, distance, self.block // 2))
        return half_blocks.transpose(-3, -2).flatten(-4)

    def _scatter(self, rows: Tensor, distance: int) -> Tensor:
        """Undo :meth:`_gather`."""
        half_blocks = rows.unflatten(-1, (-1, distance, 2, self.block // 2))
        return half_blocks.transpose(-3, -2).flatten(-4)
