"""The interface of rotations in fine-tuning: an orthogonal matrix that is initially the identity."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...geometry import accumulation_dtype
from ..parametrization import max_orthogonality_error

if TYPE_CHECKING:
    from .tuning_method import TuningMethod


class Rotation(nn.Module, ABC):
    """An orthogonal R, or one for each part of a fused weight, that is applied without being formed.

    Attributes:
        raw: The learned parameters.
        entries: Number of entries of one skew-symmetric generator, or 1 if the parameters are not generators.

    Args:
        method: The method and its options.
        parts: Number of independent R: 3 for the fused query, key and value of an attention.
        n: Size of each R.
        like: A tensor with the device of the parameters; their dtype is that of ``like``, but at least float32.
        generator: Random generator of the initialization.
    """

    raw: nn.Parameter
    entries: int = 1
    redrawable = False  # whether a reset draws a new order of the coordinates

    @abstractmethod
    def __init__(
        self, method: "TuningMethod", parts: int, n: int, like: Tensor, generator: torch.Generator | None = None
    ):
        super().__init__()
        self.parts, self.n = parts, n

    @classmethod
    def explain_misfit(cls, method: "TuningMethod", n: int) -> str | None:
        """Return why the method has no rotation of size ``n``, or None."""
        if method.choose_block(n)[0] < 2:
            return f"no block from 2 to {method.block} divides the {n} numbers of its neurons"
        return None

    @classmethod
    def describe(cls, method: "TuningMethod", n: int) -> str:
        """Describe the rotation of size ``n`` in a few words."""
        return f"block {method.choose_block(n)[0]}"

    @property
    @abstractmethod
    def cost(self) -> int:
        """The number of multiplications per rotated number."""

    @property
    def freedom(self) -> int:
        """The dimension of the set of possible R."""
        return self.raw.numel()

    @abstractmethod
    def forward(self, rows: Float[Tensor, "parts m n"], transpose: bool = False) -> Float[Tensor, "parts m n"]:
        """Return R v or Rᵀ v for every row v, computed in float32 or better, in the dtype of the rows."""

    def reset(self, generator: torch.Generator | None = None) -> None:
        """Return to R = I, by default with generators of zero, and draw the random parts of the rotation again."""
        with torch.no_grad():
            self.raw.zero_()

    def rewind(self, t: float) -> None:
        """Move R towards the identity by multiplying the generators by ``t``."""
        with torch.no_grad():
            self.raw.mul_(t)

    @torch.no_grad()
    def matrix(self) -> Float[Tensor, "parts n n"]:
        """Return R, for inspection."""
        eye = torch.eye(self.n, dtype=accumulation_dtype(self.raw), device=self.raw.device)
        return self(eye.expand(self.parts, self.n, self.n)).mT

    def error(self) -> float:
        """Return the largest entry of |RᵀR − I|, computed in float64."""
        return max_orthogonality_error(self.matrix())

    def extra_repr(self) -> str:
        """Describe the number and the size of R."""
        return f"parts={self.parts}, n={self.n}"
