"""Count the tries and failures of an attack, and store them as rows."""

import datetime
import fcntl
import json
import pathlib
import platform
import tempfile
import time
from collections import Counter
from typing import Any

import torch

ROWS = pathlib.Path(__file__).parents[2] / "benchmarks" / "reports" / "attack.jsonl"
SHOWN = 20  # failures listed in a row


class Tally:
    """Counts of one part of an attack. Call ``held(outcome)`` or ``broke(what)`` for every try."""

    def __init__(self, kind: str, part: str):
        self.kind, self.part = kind, part
        self.outcomes: Counter[str] = Counter()
        self.failures: list[str] = []
        self.started, self.cpu = time.monotonic(), _cpu()
        self.conditions: dict[str, Any] = {}

    def held(self, outcome: str = "held", count: int = 1) -> None:
        """Count tries that kept the promise, by outcome."""
        self.outcomes[outcome] += count

    def broke(self, what: str) -> None:
        """Record a try that broke the promise."""
        self.failures.append(what)
        print(f"  BROKE {self.kind} {self.part}: {what[:1500]}", flush=True)

    def check(self, good: bool, what: str, outcome: str = "held") -> bool:
        """Count one try: held if ``good``, otherwise broken with the message ``what``."""
        self.held(outcome) if good else self.broke(what)
        return good

    @property
    def tried(self) -> int:
        """Number of tries so far."""
        return sum(self.outcomes.values()) + len(self.failures)

    def row(self) -> dict[str, Any]:
        """Return the counts and conditions as a JSON-compatible row."""
        return {
            "kind": self.kind,
            "part": self.part,
            "tried": self.tried,
            "failed": len(self.failures),
            "outcomes": dict(sorted(self.outcomes.items())),
            "failures": [text[:600] for text in self.failures[:SHOWN]],
            "date": datetime.date.today().isoformat(),
            "seconds": round(time.monotonic() - self.started, 1),
            "cpu_seconds": round(_cpu() - self.cpu, 1),
            "conditions": {
                "python": platform.python_version(),
                "torch": torch.__version__,
                "threads": 1,
                **self.conditions,
            },
        }


CLAIMS: list[Any] = []  # locks held until this process ends
AGAIN = False  # whether to rerun parts that already have a row
KEPT = True  # whether this run records rows


def due(kind: str, part: str) -> bool:
    """Return whether to run a part: it has no row and no other process runs it, or a rerun was requested."""
    if AGAIN or not KEPT:
        return True
    if any((row["kind"], row["part"]) == (kind, part) for row in read()):
        return False
    claim = open(pathlib.Path(tempfile.gettempdir()) / f"attack {kind} {part}.claim", "w")  # noqa: SIM115 - held to the end
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    CLAIMS.append(claim)
    return True


def keep(row: dict[str, Any], path: pathlib.Path = ROWS) -> None:
    """Store a row, replacing the one of the same kind and part. A lock allows several kinds to run at once."""
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        rows = [other for other in read(path) if (other["kind"], other["part"]) != (row["kind"], row["part"])]
        temporary = path.with_suffix(".part")
        temporary.write_text("".join(json.dumps(one) + "\n" for one in [*rows, row]), encoding="utf-8")
        temporary.replace(path)
    path.with_suffix(".lock").unlink(missing_ok=True)


def read(path: pathlib.Path = ROWS) -> list[dict[str, Any]]:
    """Return the stored rows."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def _cpu() -> float:
    """Return the CPU seconds of this process and of its finished children."""
    import os

    found = os.times()
    return found.user + found.system + found.children_user + found.children_system
