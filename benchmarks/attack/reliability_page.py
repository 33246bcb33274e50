"""``docs/reliability.md`` from the rows of the attack: what is promised, what was tried, what failed."""

import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from .tally import read

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "reliability.md"

TITLES = {
    "kills of training": "Training killed by `kill -9` at random moments and resumed",
    "kills of galleries": "Writers of galleries killed by `kill -9` at random moments",
    "concurrent writers": "Several writers at once",
    "bit flips": "One bit of a file flipped",
    "settings": "Nonsense settings on the command line",
    "config files": "Config files changed by hand or by chance",
    "images": "Damaged and hostile pictures",
    "numerics": "Extreme numbers",
    "service": "The service under hostile requests",
}

PROMISES = {
    "kills of training": "The resumed run equals an undisturbed one in every byte of its log, weights, checkpoints and metrics.",
    "kills of galleries": "Everybody whose enrolment was acknowledged is there, whoever was removed is not, nobody is half there, "
    "and `gallery check` finds nothing.",
    "concurrent writers": "Of two trainers of one folder one trains and the other is refused or goes on afterwards; "
    "everything that several writers put into a gallery is there.",
    "bit flips": "The file is refused, or its content is the same as before.",
    "settings": "The run trains, or one sentence says what is accepted, with status 1 or 2; no traceback, no hang, "
    "and no folder of a start that is refused before its first checkpoint.",
    "config files": "The run is resumed, or one sentence says what is wrong.",
    "images": "The picture is decoded, or refused with one kind of error.",
    "numerics": "Losses, gradients and weights are finite wherever those of cross-entropy on a linear layer are. L-Softmax at a "
    "rate of 10 is compared with a layer of features 2m − 1 times as long, which is how much its margin lengthens the logit.",
    "service": "No traceback in an answer or in the log, nobody let in without the key, no growth of memory or of open "
    "descriptors, everybody acknowledged is enrolled.",
}

HEAD = """# Reliability

What is promised here is attacked by `make attack`: moments of kills, flipped bits, settings, pictures, numbers and requests are
drawn from fixed seeds, and each try is compared with the promise. `make attack ARGS="images flips"` runs some kinds, `--again`
tries parts that have a row once more, and this page is written from the rows in `benchmarks/reports/attack.jsonl`.
`SECURITY.md` in the repository says what is promised about untrusted files and how to report a problem.

"""

TAIL = """
## What is not promised
- A kill ends a process, not the machine. What is acknowledged is written with `fsync`; a power cut was not tried.
- A checkpoint is bound to its settings, its training data and its threads: others are refused or said. On another kind of CPU, or
  with another version of PyTorch, a resumed run goes on but its last bits differ.
- Of a dataset of files the labels and the number of samples are compared, not the pixels of every file.
- Where the features themselves are moved at a learning rate of 10, L-Softmax with m = 4 diverges more often than a linear layer:
  its target cannot be reached, and the gradients grow with the weights. The run then stops with one sentence.
- A bit that flips in memory, or on its way to the disk before the checksum is computed, is not found.
- Kills of two processes run on one machine. Several machines were not tried.
- Kills of training and the fuzzed settings ran with their folders in memory (`TMPDIR`), where flushing costs nothing.
- Permissions and full disks are tested one by one in the test suite, not by this attack.
"""


def page(rows: Iterable[Mapping[str, Any]]) -> str:
    """The page as text."""
    by_kind: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_kind.setdefault(row["kind"], []).append(row)
    total, failed = (sum(row[key] for found in by_kind.values() for row in found) for key in ("tried", "failed"))
    text = HEAD + f"In all {total:,} tries, {failed:,} failed.\n\n"
    text += "| attack | tried | failed | CPU seconds | date |\n|---|---:|---:|---:|---|\n"
    known = [kind for kind in TITLES if kind in by_kind]
    for kind in known:
        found = by_kind[kind]
        tried, lost, cpu = (sum(row[key] for row in found) for key in ("tried", "failed", "cpu_seconds"))
        text += f"| {TITLES[kind]} | {tried:,} | {lost:,} | {cpu:,.0f} | {max(row['date'] for row in found)} |\n"
    for kind in known:
        text += f"\n## {TITLES[kind]}\n{PROMISES[kind]}\n\n" + _parts(by_kind[kind])
    return text + TAIL


def _parts(rows: list[Mapping[str, Any]]) -> str:
    text = "| part | tried | failed | outcomes | conditions |\n|---|---:|---:|---|---|\n"
    for row in sorted(rows, key=lambda row: _order(row["part"])):
        outcomes = "; ".join(f"{name} {count:,}" for name, count in row["outcomes"].items())
        conditions = "; ".join(f"{name} {_plain(value)}" for name, value in row["conditions"].items())
        text += f"| {row['part']} | {row['tried']:,} | {row['failed']:,} | {outcomes} | {conditions} |\n"
    for row in rows:
        text += "".join(f"\nFailed in {row['part']}: `{' '.join(what.split())[:300]}`\n" for what in row["failures"])
    return text


def _order(part: str) -> tuple[str, int]:
    name, _, number = part.rpartition(" ")
    return (name, int(number)) if number.isdecimal() else (part, 0)


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {item:,} bytes" for key, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def write() -> None:
    """Write the page from the rows."""
    PAGE.write_text(page(read()), encoding="utf-8")
