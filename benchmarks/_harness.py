"""Shared by the benchmark scripts: interleaved timing as a ratio to a floor, and peak memory in a fresh process."""

import argparse
import datetime
import json
import pathlib
import platform
import subprocess
import sys
import time
from collections.abc import Callable

import torch


def interleaved(
    work: dict[str, Callable[[], object]], rounds: int = 7, warmup: int = 1, min_seconds: float = 0.0
) -> dict[str, float]:
    """CPU seconds of each piece of work: the least of ``rounds``, taken in turn so that noise falls on all alike.

    CPU time of the whole process counts every thread; a round repeats its work until ``min_seconds`` have passed.
    """
    best = dict.fromkeys(work, float("inf"))
    for f in work.values():
        for _ in range(warmup):
            f()
    for _ in range(rounds):
        for name, f in work.items():
            start, count = time.process_time(), 0
            while True:
                f()
                count += 1
                elapsed = time.process_time() - start
                if elapsed >= min_seconds:
                    break
            best[name] = min(best[name], elapsed / count)
    return best


def peak_memory(script: str, *arguments: str) -> float:
    """Extra peak resident memory in MiB of one call, measured in a fresh process.

    The script is run with ``--memory ARGUMENTS…``; it must call :func:`measure_peak` on the work and print the result.
    """
    command = [sys.executable, script, "--memory", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return float(done.stdout.strip().splitlines()[-1])


def measure_peak(work: Callable[[], object]) -> float:
    """MiB by which resident memory rises above what it is now while ``work`` runs (Linux: the high-water mark is reset)."""
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")
    before = _resident("VmRSS")
    work()
    return _resident("VmHWM") - before


def _resident(field: str) -> float:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field)) / 1024


def parser(description: str | None) -> argparse.ArgumentParser:
    """Options every script has; a run is recorded only on request."""
    p = argparse.ArgumentParser(description=description)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--record", action="store_true", help="write the dated report into benchmarks/reports/")
    p.add_argument("--memory", nargs="+", help=argparse.SUPPRESS)
    return p


def report(
    name: str,
    title: str,
    header: list[str],
    rows: list[list[object]],
    args: argparse.Namespace,
    notes: str = "",
    how: str = "",
) -> None:
    """Print a table; with ``--record`` also write it, dated and with its conditions, to ``reports/<name>.md``."""
    cells = [header, *[[f"{c:.2f}" if isinstance(c, float) else str(c) for c in row] for row in rows]]
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    lines.insert(1, "|" + "---|" * len(header))
    conditions = (
        f"{datetime.date.today()}, torch {torch.__version__}, Python {platform.python_version()}, {args.threads} threads, "
        + (how or f"{args.rounds} interleaved rounds, the least CPU time of each.")
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
