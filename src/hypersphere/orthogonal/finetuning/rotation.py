"""The contract of rotations in fine-tuning: an orthogonal matrix that starts as the identity."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

if TYPE_CHECKING:
    from .tuning_method import TuningMethod


class Rotation(nn.Module, ABC):
    """An orthogonal R, or one for each of several parts of a fused weight, that is applied without being formed.

    Args:
        parts: how many independent R there are; 3 for the fused query, key and value of an attention.
        n: the size of each.
    """

    raw: nn.Parameter
    redrawable = False  # whether a reset draws an order of the coordinates

    def __init__(self, parts: int, n: int):
        super().__init__()
        self.parts, self.n = parts, n

    @classmethod
    @abstractmethod
    def create(
        cls, method: "TuningMethod", parts: int, n: int, like: Tensor, generator: torch.Generator | None
    ) -> "Rotation":
        """Return the identity for ``parts`` sets of neurons of ``n`` numbers, with the options of a method.

        Args:
            method: the method.
            parts: how many rotations.
            n: the size of each.
            like: a tensor whose device and precision, float32 at least, the parameters have.
            generator: draws what is random.
        """

    @classmethod
    def explain_misfit(cls, method: "TuningMethod", n: int) -> str | None:
        """Return why ``n`` numbers cannot be turned by the method, or None."""
        if method.choose_block(n)[0] < 2:
            return f"no block from 2 to {method.block} divides the {n} numbers of its neurons"
        return None

    @classmethod
    def describe(cls, method: "TuningMethod", n: int) -> str:
        """Describe in a few words what ``n`` numbers get."""
        return f"block {method.choose_block(n)[0]}"

    @property
    @abstractmethod
    def cost(self) -> int:
        """Multiplications for every number that is turned."""

    @property
    def entries(self) -> int:
        """The entries of one skew-symmetric generator, or 1 if the parameters are not generators."""
        return 1

    @property
    def freedom(self) -> int:
        """The dimension of the set that R moves in."""
        return self.raw.numel()

    @abstractmethod
    def forward(self, rows: Float[Tensor, "parts m n"], transpose: bool = False) -> Float[Tensor, "parts m n"]:
        """Return R v for every row v, or Rᵀ v, computed in float32 or better, in the rows' dtype."""

    @abstractmethod
    def reset(self, generator: torch.Generator | None = None) -> None:
        """Make R the identity again; what is random about this kind is drawn anew."""

    def rewind(self, t: float) -> None:
        """Move R to the share ``t`` of the way from the identity: the generators are multiplied by t."""
        with torch.no_grad():
            self.raw.mul_(t)

    @torch.no_grad()
    def matrix(self) -> Float[Tensor, "parts n n"]:
        """Return R itself, to look at; nothing computes with it."""
        eye = torch.eye(self.n, dtype=torch.promote_types(self.raw.dtype, torch.float32), device=self.raw.device)
        return self(eye.expand(self.parts, self.n, self.n)).mT

    def error(self) -> float:
        """Return the largest entry of |RᵀR − I|, multiplied in float64."""
        r = self.matrix().double()
        return float((r.mT @ r - torch.eye(self.n, dtype=r.dtype, device=r.device)).abs().max())

    def extra_repr(self) -> str:
        """Describe how many R of which size there are."""
        return f"parts={self.parts}, n={self.n}"
