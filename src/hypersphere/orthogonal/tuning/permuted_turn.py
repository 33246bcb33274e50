"""Block-diagonal rotations between randomly permuted coordinates (POET)."""

import torch
from jaxtyping import Float
from torch import Tensor

from .block_turn import BlockTurn


class PermutedTurn(BlockTurn):
    """A :class:`BlockTurn` of coordinates in a random order, drawn anew by every :meth:`reset` (POET; Qiu et al., 2025).

    Blocks alone never mix coordinates of different blocks; with a new order after every merge all of them meet.
    """

    order: Tensor
    back: Tensor

    def __init__(
        self, parts: int, n: int, block: int, terms: int | None, like: Tensor, generator: torch.Generator | None = None
    ):
        super().__init__(parts, n, block, terms, None, like)
        self.register_buffer("order", torch.arange(n, device=like.device).repeat(parts, 1))
        self.register_buffer("back", self.order.clone())
        self.reset(generator)

    def forward(self, rows: Float[Tensor, "parts m n"], transpose: bool = False) -> Float[Tensor, "parts m n"]:
        """R v or Rᵀ v for every row v."""
        there, back = (o.unsqueeze(1).expand_as(rows) for o in (self.order, self.back))
        return super().forward(rows.gather(-1, there), transpose).gather(-1, back)

    def reset(self, generator: torch.Generator | None = None) -> None:
        """Zeros, and a new order."""
        super().reset(generator)
        for part in range(self.parts):
            device = generator.device if generator is not None else self.order.device
            self.order[part] = torch.randperm(self.n, generator=generator, device=device)
        self.back.copy_(self.order.argsort(-1))
