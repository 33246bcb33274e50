"""Measure the time and the figures of `make demo` after installation.

Goals: at most 60 s of wall-clock time on two quiet cores, an EER below 5 % and a rank-1 above 90 % on letters of alphabets that
are not in the training set. On a busy machine only the CPU time is meaningful.
"""

import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

import _harness


def run_demo() -> dict[str, float]:
    """Run the demo in a fresh process; return its times in seconds and its figures in percent."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "hypersphere.cli.main", "demo", "-o", folder]
        environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        before, start = read_cpu(), time.perf_counter()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        wall = time.perf_counter() - start
        assert pathlib.Path(folder, "report.html").is_file(), done.stdout
        figures = json.loads(pathlib.Path(folder, "fit", "report.json").read_text(encoding="utf-8"))["figures"]
        named, unknown = read_answers(done.stdout)
    measured = {name: 100 * figures[name]["value"] for name in ("EER", "rank-1")}
    return {"wall": wall, "cpu": read_cpu() - before, **measured, "named": named, "unknown": unknown}


def read_answers(text: str) -> tuple[float, float]:
    """Return the percentages of enrolled letters with the right name and of rejected strangers, from the printed table.

    >>> read_answers("Georgian,  33  198  174  6  18\\nArmenian,  34  408  –  72  336")
    (87.87878787878788, 82.35294117647058)
    """
    rows = re.findall(r"(Georgian|Armenian),? +\d+ +(\d+) +(\d+|–) +\d+ +(\d+)", text)
    counts = {script: (int(total), right, int(unknown)) for script, total, right, unknown in rows}
    georgian, armenian = counts["Georgian"], counts["Armenian"]
    return 100 * int(georgian[1]) / georgian[0], 100 * armenian[2] / armenian[0]


def read_cpu() -> float:
    """Return the CPU seconds of terminated child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Run the demo and print or record one row per round."""
    parser = _harness.make_parser(__doc__)
    parser.add_argument("--note", default="", help="what else the machine was doing")
    parser.set_defaults(rounds=1, threads=1)
    args = parser.parse_args()
    header = [
        "demo",
        "wall-clock s",
        "CPU s",
        "EER %",
        "rank-1 %",
        "enrolled letters named rightly %",
        "strangers rejected %",
    ]
    rows: list[list[object]] = []
    for _ in range(args.rounds):
        figures = run_demo()
        rows.append(["letters", *(figures[key] for key in ("wall", "cpu", "EER", "rank-1", "named", "unknown"))])
    how = f"{os.cpu_count() or 1} cores; the demo uses one thread. Letters of Georgian and Armenian, trained on three other scripts."
    _harness.write_report("demo", "The demo: letters of unseen alphabets", header, rows, args, args.note, how)


if __name__ == "__main__":
    main()
