"""The interface between a task and the trainer: a module whose forward is a loss, its batches and its evaluation."""

import os
import pathlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..._extras import require
from ...evaluation import Evidence
from ...files import write_atomically
from ..measures import annealing_value, layer_energies

Batch = tuple[Tensor, ...]


class Batches(Protocol):
    """A stream of batches with a position."""

    def __iter__(self) -> Iterator[Batch]: ...

    def state_dict(self) -> dict[str, Any]:
        """Returns the position."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Moves to a saved position."""


class Task(nn.Module, ABC):
    """All learned parts in one module, so that one DDP wrapper and one ``state_dict`` contain them.

    ``forward(step, *batch)`` gives the loss and its named parts. The trainer calls :meth:`advance` after every step,
    :meth:`evaluate` now and then, and :meth:`pictures` at the end. ``loader`` gives batches; ``model`` is what is kept.

    >>> class Slope(Task):  # your own task: a regression
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.model = nn.Linear(1, 1)
    ...     def forward(self, step, *batch):
    ...         loss = (self.model(batch[0]) - batch[1]).square().mean()
    ...         return loss, {"square": loss}
    ...     def evaluate(self): return {"slope": float(self.model.weight)}
    >>> loss, parts = Slope()(0, torch.ones(4, 1), torch.zeros(4, 1))
    >>> loss.requires_grad, list(parts)
    (True, ['square'])
    """

    model: nn.Module
    loader: Batches
    partial = False
    """whether a step may leave parameters without a gradient (two players taking turns)"""

    def __init__(self) -> None:
        super().__init__()
        self.started: dict[str, list[str]] = {}
        self.logged_energy: dict[str, Any] = {}  # s and half_space of the energies in measures(), set by the trainer

    @abstractmethod
    def forward(self, step: int, *batch: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of a batch, and its parts for the log."""

    @abstractmethod
    def evaluate(self) -> dict[str, float]:
        """Return the metrics. Called without gradients, in evaluation mode, on every process."""

    def advance(self, step: int) -> None:
        """Advance all schedules; ``step`` steps have been made."""

    def measures(self) -> dict[str, float]:
        """Return further values that are logged with every evaluation."""
        return {**layer_energies(self.model, **self.logged_energy), **annealing_value(self.model)}

    def pictures(self, folder: pathlib.Path) -> None:
        """Draw pictures into the folder."""

    def evidence(self) -> Evidence | None:
        """Return measured samples with their features for a report page, or None."""
        return None

    def keep(self, folder: pathlib.Path, weights: Mapping[str, Tensor]) -> str | None:
        """Write further files from the final ``weights``, such as an embedder; return the reason if none was written."""
        return "this task has no features to embed by"

    def summary(self) -> dict[str, Any]:
        """Return what the model card says about the data."""
        return {}

    def compile_model(self) -> None:
        """Compile the slow parts."""
        self.model.compile()

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return next(self.parameters()).device


def draw(
    path: str | os.PathLike[str], plot: Callable[..., Any], *args: Any, projection: str | None = None, **options: Any
) -> None:
    """Save ``plot(*args, ax=…)`` to a file."""
    figure = require("matplotlib.figure").Figure(figsize=(5.0, 4.0), layout="constrained")
    plot(*args, ax=figure.add_subplot(projection=projection), **options)
    write_atomically(path, lambda temporary: figure.savefig(temporary, dpi=120))
