"""What every kind of rotation of fine-tuning can do: an orthogonal matrix that starts as the identity."""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Rotation(nn.Module, ABC):
    """An orthogonal R, or one for each of several parts of a fused weight, that is applied without being formed.

    Args:
        parts: how many independent R there are; 3 for the fused query, key and value of an attention.
        n: the size of each.
    """

    raw: nn.Parameter

    def __init__(self, parts: int, n: int):
        super().__init__()
        self.parts, self.n = parts, n

    @property
    @abstractmethod
    def cost(self) -> int:
        """Multiplications for every number that is turned."""

    @property
    def freedom(self) -> int:
        """The dimension of the set that R moves in."""
        return self.raw.numel()

    @abstractmethod
    def forward(self, rows: Float[Tensor, "parts m n"], transpose: bool = False) -> Float[Tensor, "parts m n"]:
        """R v for every row v, or Rᵀ v, in float32 or better, in the rows' dtype."""

    @abstractmethod
    def reset(self, generator: torch.Generator | None = None) -> None:
        """Make R the identity again; what is random about this kind is drawn anew."""

    @torch.no_grad()
    def matrix(self) -> Float[Tensor, "parts n n"]:
        """R itself, for looking at; nothing computes with it."""
        eye = torch.eye(self.n, dtype=torch.promote_types(self.raw.dtype, torch.float32), device=self.raw.device)
        return self(eye.expand(self.parts, self.n, self.n)).mT

    def error(self) -> float:
        """The largest entry of |RᵀR − I|, multiplied in float64."""
        r = self.matrix().double()
        return float((r.mT @ r - torch.eye(self.n, dtype=r.dtype, device=r.device)).abs().max())

    def extra_repr(self) -> str:
        """How many R of which size."""
        return f"parts={self.parts}, n={self.n}"
