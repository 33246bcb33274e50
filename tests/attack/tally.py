"""What an attack has tried and what broke, and the rows that are kept of it."""

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
SHOWN = 20  # failures that a row spells out


class Tally:
    """Counts of one part of a kind of attack: ``held(outcome)`` and ``broke(what)`` for every try."""

    def __init__(self, kind: str, part: str):
        self.kind, self.part = kind, part
        self.outcomes: Counter[str] = Counter()
        self.failures: list[str] = []
        self.started, self.cpu = time.monotonic(), _cpu()
        self.conditions: dict[str, Any] = {}

    def held(self, outcome: str = "held", count: int = 1) -> None:
        """A try that ended as promised, and in which of the promised ways."""
        self.outcomes[outcome] += count

    def broke(self, what: str) -> None:
        """A try that did not."""
        self.failures.append(what)
        print(f"  BROKE {self.kind} {self.part}: {what[:1500]}", flush=True)

    def check(self, good: bool, what: str, outcome: str = "held") -> bool:
        """One try: held if ``good``, else ``what`` went wrong."""
        self.held(outcome) if good else self.broke(what)
        return good

    @property
    def tried(self) -> int:
        """Tries so far."""
        return sum(self.outcomes.values()) + len(self.failures)

    def row(self) -> dict[str, Any]:
        """What is kept."""
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


CLAIMS: list[Any] = []  # held by this process as long as it lives
AGAIN = False  # whether parts that have a row are tried once more
KEPT = True  # whether rows count


def due(kind: str, part: str) -> bool:
    """Whether a part is to be tried now: it has no row, and no other process is at it; or it is asked for again."""
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
    """Put a row in the place of the one of the same kind and part; kinds may run beside each other."""
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        rows = [other for other in read(path) if (other["kind"], other["part"]) != (row["kind"], row["part"])]
        temporary = path.with_suffix(".part")
        temporary.write_text("".join(json.dumps(one) + "\n" for one in [*rows, row]), encoding="utf-8")
        temporary.replace(path)
    path.with_suffix(".lock").unlink(missing_ok=True)


def read(path: pathlib.Path = ROWS) -> list[dict[str, Any]]:
    """The rows that are kept."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def _cpu() -> float:
    """CPU seconds of this process and of the children that have ended."""
    import os

    found = os.times()
    return found.user + found.system + found.children_user + found.children_system
