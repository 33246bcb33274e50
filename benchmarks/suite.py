"""Measure the CPU time of ``make test``: in total, of collection, and per folder of tests, including child processes.

Goals: at most 14 CPU minutes, and 10 minutes of wall-clock time on two quiet cores. As a plugin of pytest (``-p suite``), this file
records the time of each worker. Daemons such as PostgreSQL are not counted.

python benchmarks/suite.py --record                        # everything that make test runs
python benchmarks/suite.py tests/geometry                  # some tests; never recorded
"""

import collections
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import pytest

ROOT = pathlib.Path(__file__).parent.parent
FOLDER = "HYPERSPHERE_SUITE_TIMES"
COLLECTING, REST = "collecting (both workers)", "starting, ending and reporting"

_used: "collections.defaultdict[str, list[float]]" = collections.defaultdict(lambda: [0, 0.0])


def get_cpu_seconds(whose: int) -> float:
    """Return the CPU seconds of this process, or of its children that have ended."""
    used = resource.getrusage(whose)
    return used.ru_utime + used.ru_stime


def _get_total_seconds() -> float:
    return get_cpu_seconds(resource.RUSAGE_SELF) + get_cpu_seconds(resource.RUSAGE_CHILDREN)


def get_folder(test: str) -> str:
    """Return ``tests/<folder>``, ``tests`` for files beside the folders, or ``doctests`` for docstrings and pages."""
    parts = test.split("::")[0].split("/")
    return "doctests" if parts[0] != "tests" else "/".join(parts[:2]) if len(parts) > 2 else "tests"


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    before = _get_total_seconds()
    try:
        return (yield)
    finally:
        _used[COLLECTING][1] += _get_total_seconds() - before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    before = _get_total_seconds()
    try:
        return (yield)
    finally:
        entry = _used[get_folder(item.nodeid)]
        entry[0] += 1
        entry[1] += _get_total_seconds() - before


def pytest_unconfigure(config):
    if FOLDER in os.environ and (hasattr(config, "workerinput") or config.getoption("numprocesses", None) is None):
        pathlib.Path(os.environ[FOLDER], f"{os.getpid()}.json").write_text(json.dumps(_used))


def run_tests(chosen: list[str]) -> tuple[dict[str, list[float]], float, float]:
    """Run the tests; return their number and CPU seconds by folder, the total CPU seconds, and the wall-clock seconds."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "benchmarks"), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": path, FOLDER: folder, "PYTHONDONTWRITEBYTECODE": ""}
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-n",
            "2",
            "--dist",
            "worksteal",
            "-m",
            "not slow",
            "-q",
            "-p",
            "suite",
        ]
        before, start = get_cpu_seconds(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([*command, *chosen], cwd=ROOT, env=environment, check=True)
        wall, total = time.perf_counter() - start, get_cpu_seconds(resource.RUSAGE_CHILDREN) - before
        found: dict[str, list[float]] = {}
        for part in pathlib.Path(folder).iterdir():
            for name, (count, used) in json.loads(part.read_text()).items():
                old = found.get(name, [0, 0.0])
                found[name] = [old[0] + count, old[1] + used]
    return found, total, wall


def main() -> None:
    import _harness

    parser = _harness.make_parser(__doc__)
    parser.add_argument("chosen", nargs="*", help="files or folders of tests (default: all)")
    parser.add_argument("--note", default="", help="a note about other load on the machine")
    args = parser.parse_args()
    args.record &= not args.chosen
    found, total, wall = run_tests(args.chosen)
    tests = sum(int(count) for count, _ in found.values())
    found[REST] = [0, total - sum(used for _, used in found.values())]
    rows: list[list[object]] = [["everything", tests, total / 60, wall / 60]]
    order = sorted(found.items(), key=lambda entry: -entry[1][1])
    rows += [[name, int(count) or "", used / 60, ""] for name, (count, used) in order]
    how = f"{os.cpu_count()} cores, two workers with one thread each, one run; CPU time with that of processes that ended."
    _harness.write_report(
        "suite", "The tests' time", ["tests of", "tests", "CPU min", "wall-clock min"], rows, args, args.note, how
    )


if __name__ == "__main__":
    main()
