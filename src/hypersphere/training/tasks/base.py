"""What a task is to the engine: a module whose forward is a loss, the batches it wants, and how it is measured."""

import pathlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..config import Config

Batch = tuple[Tensor, ...]


class Batches(Protocol):
    """A stream of batches with a position."""

    def __iter__(self) -> Iterator[Batch]: ...

    def state_dict(self) -> dict[str, Any]:
        """Where it is."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go there."""


class Task(nn.Module, ABC):
    """Everything that is learned, in one module, so that one wrapper trains it on many processes and one state holds it.

    ``forward(step, *batch)`` gives the loss and its named parts. The engine calls :meth:`advance` after every step, :meth:`evaluate` now
    and then, and :meth:`pictures` at the end. ``loader`` gives batches; ``model`` is what is saved.
    """

    model: nn.Module
    loader: Batches
    partial = False
    """whether a step may leave parameters without a gradient (two players taking turns)"""

    def __init__(self, config: Config):
        super().__init__()
        self.config = config

    @abstractmethod
    def forward(self, step: int, *batch: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of a batch, and its parts for the log."""

    @abstractmethod
    def evaluate(self) -> dict[str, float]:
        """The measures; called without gradients, in evaluation mode, on one process."""

    def advance(self, step: int) -> None:
        """``step`` steps have been made."""

    def measures(self) -> dict[str, float]:
        """What is logged with every evaluation beside its results."""
        from ..measures import annealing_value, layer_energies

        return {**layer_energies(self.model), **annealing_value(self.model)}

    def pictures(self, folder: pathlib.Path) -> None:
        """Draw what there is to see into the folder."""

    def keep(self, folder: pathlib.Path, weights: Mapping[str, Tensor]) -> None:
        """Write what else the final ``weights`` of the plain model can be used for."""

    def summary(self) -> dict[str, Any]:
        """What the model card says of the data."""
        return {}

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device
