"""Generate ``docs/reliability.md`` from the recorded rows: promises, tries and failures."""

import collections
import pathlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from .tally import read

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "reliability.md"

TITLES = {
    "kills of training": "Training killed with `kill -9` at random times and resumed",
    "kills of galleries": "Gallery writers killed with `kill -9` at random times",
    "concurrent writers": "Concurrent writers",
    "bit flips": "Single bits of files flipped",
    "settings": "Invalid settings on the command line",
    "config files": "Modified config files",
    "images": "Damaged and hostile pictures",
    "readers": "Readers of foreign files, fuzzed with coverage guidance",
    "numerics": "Extreme numerical values",
    "service": "Hostile requests to the service",
    "mixed attack": "All attacks on the service at once",
    "expensive pictures": "Small files that are expensive to decode",
    "calibration": "Thresholds calibrated on drawn strangers",
}

COMMON = ("python", "torch", "threads")  # conditions stated once, at the top of the page

NUMBERED_PART = re.compile(r"^(block|one process) \d+$")  # equal parts with different seeds

PROMISES = {
    "kills of training": "The resumed run equals an uninterrupted one in every byte of its log, weights, checkpoints and metrics.",
    "kills of galleries": "Every acknowledged enrollment is present, every acknowledged removal is effective, no identity is "
    "incomplete, and `gallery check` reports no problem.",
    "concurrent writers": "If two trainers use one folder, one trains, and the other is refused or resumes afterwards. "
    "A gallery contains everything that several concurrent writers enrolled.",
    "bit flips": "The file is refused, or its content is unchanged.",
    "settings": "The run trains, or exits with status 1 or 2 and a message that says what is accepted. There is no traceback "
    "and no hang, and a run that is refused before its first checkpoint leaves no folder.",
    "config files": "The run resumes, or a message says what is wrong.",
    "images": "The picture is decoded, or refused with one type of error.",
    "readers": "A file is read, or refused with a message, in bounded time and memory. No other exception is raised, and no process dies.",
    "numerics": "Losses, gradients and weights are finite whenever those of cross-entropy on a linear layer are finite. "
    "L-Softmax at a learning rate of 10 is compared with a linear layer on features that are 2m − 1 times as long, because its "
    "margin lengthens the logit by that factor.",
    "service": "No traceback appears in a response or in the log, no request without the key is accepted, memory and open file "
    "descriptors do not grow, and every acknowledged enrollment is present.",
    "mixed attack": "A well-behaved client gets every answer while others send hostile requests and expensive pictures, never read "
    "their responses, and hold the lock of the gallery. No traceback appears, and everyone acknowledged is enrolled.",
    "expensive pictures": "The picture is decoded or refused within the time limit; otherwise its decoder is killed.",
    "calibration": "At least nine of ten thresholds accept new strangers at the promised rate or less.",
}

HEAD = """# Reliability

`make attack` tries to break the promises on this page. It draws kill times, bit flips, settings, pictures, numbers and requests
from fixed seeds and compares every outcome with the promise. `make attack ARGS="images flips"` runs only these attacks, and `ARGS=--again`
repeats parts that already have a row. This page is generated from the rows in `benchmarks/reports/attack.jsonl`.
`SECURITY.md` in the repository lists the promises about untrusted files and explains how to report a problem.

"""

TAIL = """
## Limits
- A kill ends a process, not the machine. Acknowledged data is written with `fsync`, but power cuts were not tested.
- A checkpoint is bound to its settings, its training data and its number of threads. Differences are refused or reported. On
  another kind of CPU, with another version of PyTorch, or with `compile=True`, a run resumes, but its results differ in the last
  bits.
- A checkpoint contains the global random generators of torch and numpy, but not Python's `random` and no generators of your code.
- For datasets made of files, a checkpoint compares the labels and the number of samples, not the pixels of every file.
- If the features themselves are optimized at a learning rate of 10, L-Softmax with m = 4 diverges more often than a linear layer,
  because its target is unreachable and its gradients grow with the weights. The run then stops with a message.
- A bit that flips in memory, or before the checksum is computed, is not detected.
- Kills of two processes were tested on one machine, not on several machines.
- The attacks with kills of training and with settings used folders in memory (`TMPDIR`), where flushing to disk takes no time.
- Missing permissions and full disks are covered by the test suite, not by this attack.
"""


def format_page(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the page as Markdown."""
    by_kind: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_kind.setdefault(row["kind"], []).append(row)
    total, failed = (sum(row[key] for found in by_kind.values() for row in found) for key in ("tried", "failed"))
    text = HEAD + f"{failed:,} of {total:,} tries failed.\n\n"
    text += "| attack | tried | failed | CPU seconds | date |\n|---|---:|---:|---:|---|\n"
    known = [kind for kind in TITLES if kind in by_kind]
    for kind in known:
        found = by_kind[kind]
        tried, lost, cpu = (sum(row[key] for row in found) for key in ("tried", "failed", "cpu_seconds"))
        text += f"| {TITLES[kind]} | {tried:,} | {lost:,} | {cpu:,.0f} | {max(row['date'] for row in found)} |\n"
    common = {
        ", ".join(f"{name} {row['conditions'].get(name)}" for name in COMMON)
        for found in by_kind.values()
        for row in found
    }
    text += f"\nConditions of all attacks: {'; '.join(sorted(common))}.\n"
    for kind in known:
        text += f"\n## {TITLES[kind]}\n{PROMISES[kind]}\n\n" + _parts(by_kind[kind])
    return text + TAIL


def _parts(rows: list[Mapping[str, Any]]) -> str:
    """Return the table of an attack. Numbered parts, such as ``block 1`` and ``block 2``, share one row."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["part"]):
        conditions = [f"{name} {_plain(value)}" for name, value in row["conditions"].items() if name not in COMMON]
        part = NUMBERED_PART.sub(r"\1", row["part"])
        groups.setdefault((part, "; ".join(conditions)), []).append(row)
    text = "| part | tried | failed | outcomes | conditions |\n|---|---:|---:|---|---|\n"
    for (part, condition_text), group in groups.items():
        outcomes = sum((collections.Counter(row["outcomes"]) for row in group), collections.Counter())
        outcome_text = "; ".join(f"{name} ({count:,})" for name, count in outcomes.items())
        tried, failed = (sum(row[key] for row in group) for key in ("tried", "failed"))
        text += f"| {part} | {tried:,} | {failed:,} | {outcome_text} | {condition_text} |\n"
    for row in rows:
        text += "".join(f"\nFailed in {row['part']}: `{' '.join(what.split())[:300]}`\n" for what in row["failures"])
    return text


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {item:,} bytes" for key, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def write() -> None:
    """Write the page from the rows."""
    PAGE.write_text(format_page(read()), encoding="utf-8")
