"""How long ``make demo`` takes after installation, alone and beside two loops that never rest.

Aims: at most 60 s of wall-clock on two quiet cores, at most twice that of alone where both cores are busy. This is the one
figure of wall-clock among the benchmarks, because it is what a visitor waits; CPU seconds are beside it.
"""

import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import _harness

LOOP = "while True: pass"


def once(busy: int) -> tuple[float, float]:
    """Wall-clock and CPU seconds of one demonstration in a fresh process beside so many busy loops."""
    loops = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(busy)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "hypersphere.cli.main", "demo", "-o", folder]
            environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
            before, start = _cpu(), time.perf_counter()
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            wall = time.perf_counter() - start
            assert pathlib.Path(folder, "report.html").is_file(), done.stdout
            return wall, _cpu() - before
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def _cpu() -> float:
    """CPU seconds of children that have ended; the loops have not yet."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = _harness.parser(__doc__)
    parser.add_argument("--note", default="", help="what else the machine was doing")
    parser.set_defaults(rounds=2, threads=1)
    args = parser.parse_args()
    cores = os.cpu_count() or 1
    found: dict[int, list[tuple[float, float]]] = {0: [], cores: []}
    for _ in range(args.rounds):
        for busy, rows in found.items():
            rows.append(once(busy))
    alone = min(wall for wall, _ in found[0])
    rows: list[list[object]] = []
    for busy, times in found.items():
        wall, cpu = min(times)
        name = "alone" if not busy else f"beside {busy} busy loops"
        rows.append([name, wall, max(wall for wall, _ in times), cpu, wall / alone])
    header = ["make demo", "wall-clock s, least", "largest", "CPU s", "ratio"]
    how = f"{cores} cores, {args.rounds} runs each in turn; the demonstration uses one thread by itself."
    _harness.report("demo", "The demonstration's time", header, rows, args, args.note, how)


if __name__ == "__main__":
    main()
