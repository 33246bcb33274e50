"""Pictures without a display: a figure of its own for each, so that nothing stays open."""

import os
from collections.abc import Callable
from typing import Any

from .._extras import require
from ..files import write_atomically


def draw(
    path: str | os.PathLike[str], plot: Callable[..., Any], *args: Any, projection: str | None = None, **options: Any
) -> None:
    """``plot(*args, ax=…)`` saved to a file."""
    figure = require("matplotlib.figure").Figure(figsize=(5.0, 4.0), layout="constrained")
    plot(*args, ax=figure.add_subplot(projection=projection), **options)
    write_atomically(path, lambda temporary: figure.savefig(temporary, dpi=120))
