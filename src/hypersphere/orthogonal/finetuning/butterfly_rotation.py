"""Rotations as products of butterfly-permuted block-diagonal factors (BOFT)."""

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..maps.map_precision import upcast
from .block_rotation import rotate_blocks, skew_cayley
from .rotation import Rotation

if TYPE_CHECKING:
    from .tuning_method import TuningMethod


class ButterflyRotation(Rotation):
    r"""R = B_m ⋯ B_2 B_1 (BOFT; Liu et al., 2024): each B_i block-diagonal after a butterfly permutation.

    Cut the n numbers into half blocks. A block of the factor i = 1, 2, … joins two half blocks whose distance is
    2^{i−1}, as in the fast Fourier transform, so that after m factors every number depends on 2^m half blocks: far more
    mixing than one factor has, for m times its parameters. Every block is a Cayley transform as in OFT.

    Args:
        parts: independent R.
        n: size of each, a multiple of ``block · 2^{factors − 1}``.
        block: size of a block, even.
        factors: m; 1 is OFT.
        terms: None for the exact transform, or the even number of terms of its Neumann series.
        like: a tensor whose device and precision, float32 at least, the parameters have.
    """

    def __init__(self, parts: int, n: int, block: int, factors: int, terms: int | None, like: Tensor):
        super().__init__(parts, n)
        assert n % (block << (factors - 1)) == 0
        self.block, self.factors, self.terms = block, factors, terms
        shape = (factors, parts, n // block, block * (block - 1) // 2)
        self.raw = nn.Parameter(torch.zeros(shape, dtype=upcast(like.dtype), device=like.device))

    @classmethod
    def create(
        cls, method: "TuningMethod", parts: int, n: int, like: Tensor, generator: torch.Generator | None
    ) -> "ButterflyRotation":
        """Return the identity in as many factors as fit ``n``."""
        block, factors = method.choose_block(n)
        return cls(parts, n, block, factors, method.terms, like)

    @classmethod
    def describe(cls, method: "TuningMethod", n: int) -> str:
        """Describe the blocks and the factors."""
        block, factors = method.choose_block(n)
        return f"block {block}, {factors} factors"

    @property
    def cost(self) -> int:
        """The size of a block for each factor."""
        return self.block * self.factors

    @property
    def entries(self) -> int:
        """The entries of a generator above the diagonal."""
        return self.block * (self.block - 1) // 2

    def forward(self, rows: Float[Tensor, "parts m n"], transpose: bool = False) -> Float[Tensor, "parts m n"]:
        """Return R v or Rᵀ v for every row v, between the factors in float32 or better."""
        with torch.autocast(rows.device.type, enabled=False):
            r = skew_cayley(self.raw.to(upcast(self.raw.dtype)), self.block, self.terms)
            result = rows.to(r.dtype)
            for i in reversed(range(self.factors)) if transpose else range(self.factors):
                gathered = self._gather(result, 1 << i) if i else result  # neighbors lie side by side already
                rotated = rotate_blocks(gathered, r[i] if transpose else r[i].mT)
                result = self._scatter(rotated, 1 << i) if i else rotated
            return result.to(rows.dtype)

    def reset(self, generator: torch.Generator | None = None) -> None:
        """Set the generators to zero."""
        with torch.no_grad():
            self.raw.zero_()

    def _gather(self, rows: Tensor, distance: int) -> Tensor:
        """Bring half blocks that are ``distance`` apart side by side."""
        apart = rows.unflatten(-1, (-1, 2, distance, self.block // 2))
        return apart.transpose(-3, -2).flatten(-4)

    def _scatter(self, rows: Tensor, distance: int) -> Tensor:
        """Undo :meth:`_gather`."""
        together = rows.unflatten(-1, (-1, distance, 2, self.block // 2))
        return together.transpose(-3, -2).flatten(-4)
