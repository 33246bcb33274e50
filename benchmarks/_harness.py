"""Helpers of the benchmark scripts: interleaved timing relative to a baseline, and peak memory in a fresh process.

glibc returns freed memory to the system and requests it again, which slows down large allocations by an amount that depends on
the previous work of the process. Every script therefore sets the two thresholds of :data:`ALLOCATOR`: if they are missing, it
restarts itself with them.
"""

import argparse
import datetime
import json
import math
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

# Set before PyTorch is imported, because its import already allocates memory.
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": str(2**31 - 1), "MALLOC_MMAP_THRESHOLD_": str(2**25)}  # 32 MiB is glibc's limit
_is_script = pathlib.Path(sys.argv[0]).resolve().parent == pathlib.Path(__file__).resolve().parent
sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))  # for the scripts that import `studies`
if _is_script and any(name not in os.environ for name in ALLOCATOR):
    os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ALLOCATOR)

import torch  # noqa: E402

MIN_ROUNDS = 7  # fewer rounds give no interval


def time_interleaved(
    work: dict[str, Callable[[], object]], rounds: int = 7, warmup: int = 1, min_seconds: float = 0.0
) -> dict[str, float]:
    """Return the CPU seconds of each function in ``work``: the minimum over interleaved rounds.

    The functions run in turn, so that noise affects all of them alike. CPU time includes all threads of the process. In each
    round a function is repeated until ``min_seconds`` have passed.
    """
    best = dict.fromkeys(work, float("inf"))
    for f in work.values():
        for _ in range(warmup):
            f()
    for _ in range(rounds):
        for name, f in work.items():
            best[name] = min(best[name], _time_once(f, min_seconds))
    return best


def compare(
    work: dict[str, Callable[[], object]],
    baseline: str,
    width: float = 0.05,
    seconds: float = 20.0,
    min_seconds: float = 0.01,
    warmup: int = 2,
) -> dict[str, "Ratio"]:
    """Measure CPU times relative to that of ``baseline`` until the intervals of all ratios are narrower than ``width``.

    A round runs each function for ``min_seconds``, and the baseline before and after it, so that a slow phase of the machine
    affects both alike. The ratio is the median over the rounds; its interval has a confidence of about 95 %.

    Args:
        work: The functions by name, including the baseline.
        baseline: Name of the baseline.
        width: Largest width of an interval, relative to the ratio.
        seconds: Longest time to measure, in wall-clock seconds. At least ``MIN_ROUNDS`` rounds run in any case.
        min_seconds: CPU seconds per function and round.
        warmup: Calls of each function before the first round.

    Returns:
        The ratio of each function except the baseline.
    """
    for f in work.values():
        for _ in range(warmup):
            f()
    rounds: dict[str, list[float]] = {name: [] for name in work if name != baseline}
    end = time.monotonic() + seconds
    while True:
        for name in rounds:
            before = _time_once(work[baseline], min_seconds)
            elapsed = _time_once(work[name], min_seconds)
            after = _time_once(work[baseline], min_seconds)
            rounds[name].append(2 * elapsed / (before + after))
        ratios = {name: Ratio.of(values) for name, values in rounds.items()}
        enough = len(next(iter(rounds.values()))) >= MIN_ROUNDS
        if (enough and time.monotonic() > end) or all(ratio.width < width for ratio in ratios.values()):
            return ratios


class Ratio(NamedTuple):
    """The median of ratios of CPU times, and its interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> "Ratio":
        """Return the median and its interval from order statistics; the interval is infinite for fewer than ``MIN_ROUNDS``."""
        ordered, n = sorted(values), len(values)
        if n < MIN_ROUNDS:
            return cls(statistics.median(values), 0.0, math.inf)
        k = max(0, math.floor((n - 1.96 * math.sqrt(n)) / 2))
        return cls(statistics.median(values), ordered[k], ordered[n - 1 - k])

    @property
    def width(self) -> float:
        """The width of the interval relative to the ratio."""
        return (self.high - self.low) / self.value

    def __str__(self) -> str:
        digits = 2 if self.value >= 0.1 else 4
        return f"{self.value:.{digits}f} [{self.low:.{digits}f}, {self.high:.{digits}f}]"


def _time_once(f: Callable[[], object], min_seconds: float) -> float:
    """Return the mean CPU seconds of a call, repeated until ``min_seconds`` have passed."""
    start, count = time.process_time(), 0
    while True:
        f()
        count += 1
        elapsed = time.process_time() - start
        if elapsed >= min_seconds:
            return elapsed / count


def peak_memory(script: str, *arguments: str) -> float:
    """Return the extra peak resident memory of one call in MiB, measured in a fresh process.

    The process runs the script with ``--memory ARGUMENTS…``. The script must call :func:`measure_peak` and print the result.
    """
    command = [sys.executable, script, "--memory", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return float(done.stdout.strip().splitlines()[-1])


def measure_peak(work: Callable[[], object]) -> float:
    """Return the rise of peak resident memory in MiB while ``work`` runs. Linux only: it resets the high-water mark."""
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")
    before = _read_status("VmRSS")
    work()
    return _read_status("VmHWM") - before


def _describe_build() -> str:
    """Return the math library and the vector instructions of this build of PyTorch."""
    library = "MKL" if torch.backends.mkl.is_available() else "OpenBLAS"
    return f"{library}, {torch.backends.cpu.get_cpu_capability()}"


def _read_status(field: str) -> float:
    """Return a field of ``/proc/self/status`` in MiB."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field)) / 1024


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of every script."""
    p = argparse.ArgumentParser(description=description)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--record", action="store_true", help="write the dated report into benchmarks/reports/")
    p.add_argument("--memory", nargs="+", help=argparse.SUPPRESS)
    return p


def write_report(
    name: str,
    title: str,
    header: list[str],
    rows: list[list[object]],
    args: argparse.Namespace,
    notes: str = "",
    how: str = "",
) -> None:
    """Print a table with date and conditions; with ``--record`` also write it to ``reports/<name>.md`` and ``.json``."""
    cells = [header, *[[f"{c:.2f}" if isinstance(c, float) else str(c) for c in row] for row in rows]]
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    lines.insert(1, "|" + "---|" * len(header))
    conditions = (
        f"{datetime.date.today()}, torch {torch.__version__}, Python {platform.python_version()}, {args.threads} threads, "
        + (how or f"{args.rounds} interleaved rounds, the least CPU time of each.")
        + f" Load {os.getloadavg()[0]:.1f}; {platform.machine()}, {_describe_build()}; allocator thresholds raised."
    )
    text = "\n".join([f"# {title}", "", conditions, "", *lines, "", notes]).strip() + "\n"
    print(text)
    if args.record:
        path = pathlib.Path(__file__).parent / "reports" / f"{name}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.with_suffix(".json").write_text(
            json.dumps({"conditions": conditions, "header": header, "rows": rows}, indent=1) + "\n"
        )
