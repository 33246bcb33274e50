"""Rows of finished runs: one JSON object per line of a file in ``reports``."""

import json
import pathlib
from typing import Any

Row = dict[str, Any]


def read_rows(path: pathlib.Path) -> list[Row]:
    """Return the rows of a file; none if it does not exist."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append_row(path: pathlib.Path, row: Row) -> None:
    """Append a row to a file."""
    with path.open("a") as file:
        file.write(json.dumps(row, ensure_ascii=False) + "\n")
