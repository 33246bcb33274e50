"""Callbacks of a run, called after steps and evaluations, with a state that is saved in checkpoints."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .trainer import Trainer

Progress = Callable[[int, dict[str, Any]], None]


class Callback:
    """Base class of callbacks; a subclass overrides the methods for the events that it needs.

    >>> class Losses(Callback):
    ...     def __init__(self):
    ...         self.seen = []
    ...     def on_log(self, trainer, row):
    ...         self.seen.append(row.get("loss"))
    """

    def on_start(self, trainer: "Trainer") -> None:
        """Handle the start or the continuation of training."""

    def on_step(self, trainer: "Trainer") -> None:
        """Handle the end of a step; ``trainer.step`` already counts it."""

    def on_log(self, trainer: "Trainer", row: dict[str, Any]) -> None:
        """Handle a new row of the log."""

    def on_evaluate(self, trainer: "Trainer", row: dict[str, Any]) -> None:
        """Handle the metrics of an evaluation."""

    def on_end(self, trainer: "Trainer", metrics: dict[str, float]) -> None:
        """Handle the end of training, after all files were written."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state to save in a checkpoint: tensors, numbers, text, lists and dicts."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""
