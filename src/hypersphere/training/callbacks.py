"""What may listen to a run: called after steps and evaluations, with a state that is kept in checkpoints."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .trainer import Trainer

Progress = Callable[[int, dict[str, Any]], None]


class Callback:
    """Listens to a run; a subclass overrides what it wants to hear.

    >>> class Losses(Callback):
    ...     def __init__(self):
    ...         self.seen = []
    ...     def on_log(self, trainer, row):
    ...         self.seen.append(row.get("loss"))
    """

    def on_start(self, trainer: "Trainer") -> None:
        """Training begins or goes on."""

    def on_step(self, trainer: "Trainer") -> None:
        """A step has been made; ``trainer.step`` counts it."""

    def on_log(self, trainer: "Trainer", row: dict[str, Any]) -> None:
        """A row has been written to the log."""

    def on_evaluate(self, trainer: "Trainer", row: dict[str, Any]) -> None:
        """The model has been measured."""

    def on_end(self, trainer: "Trainer", metrics: dict[str, float]) -> None:
        """Training has ended and everything is written."""

    def state_dict(self) -> dict[str, Any]:
        """What must be kept to go on after a stop: tensors, numbers, text, lists and dicts."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a kept state."""
