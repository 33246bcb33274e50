"""Verification of pairs that are scored in batches."""

import torch
from jaxtyping import Shaped
from torch import Tensor

from ._verification import VerificationReport, verification
from .roc import check_pairs


class VerificationAccumulator:
    """A streaming version of :func:`verification`: call ``update`` with batches, then ``compute`` for the same report.

    All scores are stored in their dtype on the CPU: 5 bytes per float32 pair (13 with ``fold``), 5 GB for 10⁹ pairs.
    The result is exact and does not depend on the batches or on the order of the pairs.

    >>> scores, same = torch.rand(100), torch.rand(100) < 0.5
    >>> stream = VerificationAccumulator()
    >>> for part in range(0, 100, 30):
    ...     stream.update(scores[part : part + 30], same[part : part + 30])
    >>> stream.compute().json() == verification(scores, same).json()
    True
    """

    def __init__(self, folds: int = 10, *, seed: int = 0):
        self.folds, self.seed = folds, seed
        self._scores: list[Tensor] = []
        self._same: list[Tensor] = []
        self._fold: list[Tensor] = []

    def update(
        self, scores: Shaped[Tensor, "..."], same: Shaped[Tensor, "..."], fold: Shaped[Tensor, "..."] | None = None
    ) -> None:
        """Add pairs, with ``fold`` for every batch or for none. A rejected batch leaves the accumulator unchanged."""
        if self._scores and (fold is None) == bool(self._fold):
            raise ValueError("fold must be given with every batch or with none")
        if fold is not None and fold.shape != scores.shape:
            raise ValueError(f"fold must have the shape of scores {tuple(scores.shape)}, got {tuple(fold.shape)}")
        check_pairs(scores, same, both_kinds=False)  # a batch may contain only same or only different pairs
        self._scores.append(scores.detach().cpu())
        self._same.append(same.detach().cpu().bool())
        if fold is not None:
            self._fold.append(fold.detach().cpu())

    def merge(self, other: "VerificationAccumulator") -> None:
        """Add all pairs of another accumulator, for example of another process or shard."""
        for i, (scores, same) in enumerate(zip(other._scores, other._same, strict=True)):
            self.update(scores, same, other._fold[i] if other._fold else None)

    def compute(self) -> VerificationReport:
        """Return the report of all pairs so far."""
        if not self._scores:
            raise ValueError("no pairs were added: update must be called before compute")
        fold = torch.cat(self._fold) if self._fold else None
        return verification(torch.cat(self._scores), torch.cat(self._same), self.folds, fold=fold, seed=self.seed)

    def __len__(self) -> int:
        return sum(map(len, self._scores))
