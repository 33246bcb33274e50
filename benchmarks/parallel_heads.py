"""Heads of 100k and 1M classes on one and two processes, full and with a tenth of the classes: time and memory of a step.

    python benchmarks/parallel_heads.py run --again     # one turn over all rows; without --again beside those there are
    python benchmarks/parallel_heads.py --record        # the table, from the rows

Batch 128 in all, for 100k classes also 1,024, d = 512, float32, ArcFace; a step is forward, backward and RowSGD with
momentum. A turn measures every row in fresh processes of one thread each: the least CPU time of all steps of all turns
counts, so that what else the machine does falls on all rows alike, and the highest resident memory above what was there
before the head. Between the steps the three matrix products that a step cannot do without are timed as a floor. Two
processes are gloo on one machine.
Every row of a turn is kept in ``reports/parallel_heads.jsonl``; ``scale_page.py`` writes docs/scale.md from the table.
"""

import datetime
import gc
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import _harness
import torch
import torch.distributed as dist

from hypersphere.objectives import ArcFace, RowSGD

DIM = 512
CLASSES = {"100k": 100_000, "1M": 1_000_000}
SETUPS: list[tuple[int, float | None, int]] = [
    (1, None, 128), (2, None, 128), (1, 0.1, 128), (2, 0.1, 128), (1, None, 1024), (1, 0.1, 1024),
]  # fmt: skip
"""Processes, the part of the classes that is drawn, and the batch; the larger batch for 100k classes only."""
ROWS = pathlib.Path(__file__).parent / "reports" / "parallel_heads.jsonl"
MEASURES = ("cpu", "wall", "floor", "memory")


def measured(
    rank: int, processes: int, classes: int, rate: float | None, batch: int, rounds: int, folder: str
) -> dict[str, float]:
    """CPU and wall-clock seconds of a step on this process, CPU seconds of the floor, and the highest memory in MiB."""
    if processes > 1:
        meet = f"file://{folder}/meet"
        dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=processes)
    step_of(1_000 * processes, rate, processes, batch)()  # code and libraries are loaded
    gc.collect()
    made: list[Callable[[], None]] = []

    def work() -> None:
        made.append(step_of(classes, rate, processes, batch))
        for _ in range(2):
            made[0]()

    found = dict.fromkeys(MEASURES, float("inf"))
    found["memory"] = _harness.measure_peak(work)
    floor = products_of(-(-int(classes * (rate or 1)) // processes), batch)
    floor()
    for _ in range(rounds):
        found["floor"] = min(found["floor"], spent(floor)[0])
        cpu, wall = spent(made[0])
        found["cpu"], found["wall"] = min(found["cpu"], cpu), min(found["wall"], wall)
    if processes > 1:
        dist.destroy_process_group()
    return found


def spent(work: Callable[[], object]) -> tuple[float, float]:
    """CPU and wall-clock seconds of one call."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall


def products_of(rows: int, batch: int) -> Callable[[], object]:
    """The logits, the gradient of the features and that of the weight, as plain matrix products in blocks of classes."""
    x, chunk = torch.randn(batch, DIM), 2048
    w, gradient, features = torch.randn(rows, DIM), torch.empty(rows, DIM), torch.zeros(batch, DIM)

    def products() -> None:
        for start in range(0, rows, chunk):
            part = slice(start, start + chunk)
            z = x @ w[part].T
            features.addmm_(z, w[part], alpha=1e-9)
            torch.mm(z.T, x, out=gradient[part])

    return products


def step_of(classes: int, rate: float | None, processes: int, batch: int) -> Callable[[], None]:
    """One training step of a new head, as a function."""
    head = ArcFace(DIM, classes, sample=rate, device="meta" if processes > 1 else None)
    if processes > 1:
        head.shard()
    optimizer = RowSGD(head.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    rank = dist.get_rank() if processes > 1 else 0
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(batch, DIM, generator=generator).chunk(processes)[rank]
    y = torch.randint(0, classes, (batch,), generator=generator).chunk(processes)[rank]

    def step() -> None:
        optimizer.zero_grad()
        head(x.detach().requires_grad_(), y).backward()
        optimizer.step()
        head.step()

    return step


def run(processes: int, classes: int, rate: float | None, batch: int, rounds: int) -> list[dict[str, float]]:
    """What each process measured."""
    with tempfile.TemporaryDirectory() as folder:
        commands = [
            [sys.executable, __file__, "--memory", json.dumps([rank, processes, classes, rate, batch, rounds, folder])]
            for rank in range(processes)
        ]
        started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
        outputs = [process.communicate()[0] for process in started]
        if any(process.returncode for process in started):
            raise RuntimeError("a process failed")
        return [json.loads(output.strip().splitlines()[-1]) for output in outputs]


def turn(sizes: list[str], batches: list[int], rounds: int) -> None:
    """Every row once more; what the process with most of a measure has counts."""
    for size in sizes:
        for processes, rate, batch in SETUPS:
            if (size == "1M" and batch > 128) or batch not in batches:
                continue
            found = run(processes, CLASSES[size], rate, batch, rounds)
            most = {name: max(f[name] for f in found) for name in MEASURES}
            setup = {"classes": size, "processes": processes, "rate": rate, "batch": batch}
            row = {**setup, **most, "date": f"{datetime.date.today()}"}
            with ROWS.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(row, file=sys.stderr, flush=True)


def table(kept: list[dict[str, Any]]) -> list[list[object]]:
    """The least of every measure over the turns."""
    lines: list[list[object]] = []
    for size, classes in CLASSES.items():
        whole = 0.0
        for processes, rate, batch in SETUPS:
            setup = {"classes": size, "processes": processes, "rate": rate, "batch": batch}
            rows = [row for row in kept if setup.items() <= row.items()]
            if not rows:
                continue
            cpu, wall, floor, memory = (min(row[name] for row in rows) for name in MEASURES)
            whole = whole or cpu  # of the first setup
            weight = classes * DIM * 4 / 2**20 / processes
            cells = [
                size,
                processes,
                batch,
                "all" if rate is None else f"{rate:g}",
                f"{cpu:.3f}",
                cpu / whole,
                f"{wall:.3f}",
            ]
            cells += [f"{floor:.3f}", cpu / floor, f"{memory:.0f}", f"{weight:.0f}", memory / weight]
            lines.append([*cells, len(rows)])
    return lines


def main() -> None:
    p = _harness.parser(__doc__)
    p.add_argument("action", nargs="?", choices=["run"], help="measure one turn; without it the rows are shown")
    p.add_argument("--again", action="store_true", help="forget the rows of earlier turns first")
    p.add_argument("--classes", nargs="+", default=list(CLASSES), choices=list(CLASSES))
    p.add_argument("--batch", nargs="+", type=int, default=[128, 1024], choices=[128, 1024])
    p.set_defaults(rounds=2, threads=1)
    args = p.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if args.memory:
        print(json.dumps(measured(*json.loads(args.memory[0]))))
        return
    if args.action == "run":
        if args.again:
            ROWS.unlink(missing_ok=True)
        turn(args.classes, args.batch, args.rounds)
    kept = [json.loads(line) for line in ROWS.read_text().splitlines()]
    header = ["C", "processes", "batch", "classes drawn", "CPU s", "CPU / one, all", "wall s", "three products, CPU s"]
    header += ["step / products", "peak MiB", "weight MiB", "peak / weight", "turns"]
    notes = (
        "CPU seconds and memory are those of the process that has most of them; wall-clock seconds are those of two cores\n"
        "that other work may share. Weight, momentum and, without drawing, the gradient are each as large as the weight\n"
        "that a process holds."
    )
    how = f"turns over all rows in fresh processes of {args.rounds} steps, the least of each."
    title = "Heads in shards and with drawn classes, d 512, float32"
    _harness.report("parallel_heads", title, header, table(kept), args, notes, how)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    main()
