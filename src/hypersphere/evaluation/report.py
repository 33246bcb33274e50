"""What every evaluation returns: numbers by name, printed as a table, written as JSON, drawn as a picture."""

import json
import math
from abc import ABC, abstractmethod
from typing import Any

from .._extras import require

Number = float | int | str


class Report(ABC):
    """Numbers of one evaluation. ``print(report)`` is a table, :meth:`json` a string, :meth:`plot` a picture.

    A new report says its ``title``, its :meth:`numbers` and how it is drawn.
    """

    title: str = "evaluation"

    @abstractmethod
    def numbers(self) -> dict[str, Number]:
        """The figures of the report by name, in the order of the table."""

    @abstractmethod
    def draw(self, axes: Any) -> None:
        """Draw onto matplotlib axes."""

    def json(self) -> str:
        """The figures as a JSON string; what is not a finite number is ``null``, so that every parser reads it."""
        values = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in self.numbers().items()}
        return json.dumps({"report": self.title, **values}, indent=1)

    def plot(self, ax: Any = None) -> tuple[Any, Any]:
        """``(fig, ax)``: drawn on ``ax``, or on a new figure that no global state holds (needs matplotlib)."""
        if ax is None:
            ax = require("matplotlib.figure").Figure(figsize=(5, 4), layout="constrained").subplots()
        self.draw(ax)
        return ax.figure, ax

    def __str__(self) -> str:
        return table(self.title, self.numbers())

    __repr__ = __str__


def table(title: str, numbers: dict[str, Number]) -> str:
    """Two columns, names and figures.

    >>> print(table("verification", {"pairs": 6000, "AUC": 0.98765}))
    verification
      pairs    6000
      AUC    0.9877
    """
    cells = {name: f"{v:.4g}" if isinstance(v, float) else str(v) for name, v in numbers.items()}
    left, right = max(map(len, cells), default=0), max(map(len, cells.values()), default=0)
    return "\n".join([title, *(f"  {name:<{left}}  {value:>{right}}" for name, value in cells.items())])
