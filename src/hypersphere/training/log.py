"""The log of a run: one JSON object per line, without times or anything that depends on the machine."""

import json
import os
import pathlib
from typing import Any

from .._extras import require
from ..files import replace_nonfinite


class RunLog:
    """``log.jsonl`` in a folder, and a TensorBoard file if TensorBoard is installed.

    Rows hold the step and what was measured, never the time, so two runs that compute the same have the same log. ``size`` is its
    length in bytes; opening it with a ``size`` cuts off what was written after that, which a resumed run writes again.
    """

    def __init__(self, folder: str | os.PathLike[str], size: int = 0, step: int = 0):
        self.path = pathlib.Path(folder) / "log.jsonl"
        if size and not (self.path.exists() and self.path.stat().st_size >= size):
            raise ValueError(f"{self.path} is shorter than its checkpoint says ({size} bytes): it was changed by hand")
        self._file = open(self.path, "ab")  # noqa: SIM115 - open as long as the run
        self._file.truncate(size)
        self._board = _board(folder, step)

    @property
    def size(self) -> int:
        """The number of bytes written to the file."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def append(self, row: dict[str, Any]) -> None:
        """Write one row, with null for numbers that are not finite. TensorBoard receives the finite numbers."""
        self._file.write((json.dumps(replace_nonfinite(row), allow_nan=False) + "\n").encode())
        self._file.flush()
        if self._board is not None:
            for key, value in row.items():
                if isinstance(value, int | float) and key != "step":
                    self._board.add_scalar(key, value, row["step"])

    def boards(self) -> list[str]:
        """Return the names of TensorBoard's files in the folder."""
        return sorted(path.name for path in self.path.parent.glob("events.out.tfevents.*"))

    def close(self) -> None:
        """Write everything to disk and close the files."""
        self._file.close()
        if self._board is not None:
            self._board.close()


def read_log(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return the rows of a run without an incomplete last line (of a killed run, or of one that is writing).

    >>> import tempfile
    >>> from hypersphere.training import read_log
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "log.jsonl").write_text('{"step": 1, "loss": 2.5}' + chr(10) + '{"step": 2, "lo')
    ...     read_log(folder)
    [{'step': 1, 'loss': 2.5}]
    """
    path = pathlib.Path(folder) / "log.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]] if path.exists() else []


def _board(folder: str | os.PathLike[str], step: int) -> Any:
    try:
        require("tensorboard")
    except ImportError:  # an optional copy of the log, so its absence is no error
        return None
    return require("torch.utils.tensorboard").SummaryWriter(str(folder), purge_step=step + 1 if step else None)
