"""Measure time and memory of a step of heads with 100k and 1M classes, on one and two processes, full and sampled.

    python benchmarks/parallel_heads.py run --again     # measure all rows; without --again, keep the rows of earlier turns
    python benchmarks/parallel_heads.py --record        # write the table

Batch 128 in total, for 100k classes also 1,024, d = 512, float32, ArcFace. A step is forward, backward and RowSGD with momentum. A
turn measures every row in fresh processes with one thread each. The table has the minimum CPU time over all turns, and the peak
resident memory above that before the head. The floor is the three matrix products of a step, measured between the steps. Two
processes use gloo on one machine. Every row is stored in ``reports/parallel_heads.jsonl``; ``scale_page.py`` writes docs/scale.md
from the table.
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
import _rows
import torch
import torch.distributed as dist

from hypersphere.objectives import ArcFace, RowSGD

DIM = 512
CLASSES = {"100k": 100_000, "1M": 1_000_000}
SETUPS: list[tuple[int, float | None, int]] = [
    (1, None, 128), (2, None, 128), (1, 0.1, 128), (2, 0.1, 128), (1, None, 1024), (1, 0.1, 1024),
]  # fmt: skip
"""Processes, sampling rate and batch; the larger batch is used for 100k classes only."""
ROWS = pathlib.Path(__file__).parent / "reports" / "parallel_heads.jsonl"
MEASURES = ("cpu", "wall", "floor", "memory")


def measure_process(
    rank: int, processes: int, classes: int, rate: float | None, batch: int, rounds: int, folder: str
) -> dict[str, float]:
    """Return CPU and wall-clock seconds of a step in this process, CPU seconds of the floor, and the peak memory in MiB."""
    if processes > 1:
        meet = f"file://{folder}/meet"
        dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=processes)
    make_step(1_000 * processes, rate, processes, batch)()  # loads code and libraries
    gc.collect()
    made: list[Callable[[], None]] = []

    def work() -> None:
        made.append(make_step(classes, rate, processes, batch))
        for _ in range(2):
            made[0]()

    found = dict.fromkeys(MEASURES, float("inf"))
    found["memory"] = _harness.measure_peak(work)
    floor = make_products(-(-int(classes * (rate or 1)) // processes), batch)
    floor()
    for _ in range(rounds):
        found["floor"] = min(found["floor"], time_call(floor)[0])
        cpu, wall = time_call(made[0])
        found["cpu"], found["wall"] = min(found["cpu"], cpu), min(found["wall"], wall)
    if processes > 1:
        dist.destroy_process_group()
    return found


def time_call(work: Callable[[], object]) -> tuple[float, float]:
    """Return CPU and wall-clock seconds of one call."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall


def make_products(rows: int, batch: int) -> Callable[[], object]:
    """Return the floor: logits and both gradients as plain matrix products in blocks of classes."""
    x, chunk = torch.randn(batch, DIM), 2048
    w, gradient, features = torch.randn(rows, DIM), torch.empty(rows, DIM), torch.zeros(batch, DIM)

    def products() -> None:
        for start in range(0, rows, chunk):
            part = slice(start, start + chunk)
            z = x @ w[part].T
            features.addmm_(z, w[part], alpha=1e-9)
            torch.mm(z.T, x, out=gradient[part])

    return products


def make_step(classes: int, rate: float | None, processes: int, batch: int) -> Callable[[], None]:
    """Return a training step of a new head."""
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


def run_processes(processes: int, classes: int, rate: float | None, batch: int, rounds: int) -> list[dict[str, float]]:
    """Run the processes and return their measurements."""
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


def measure_all(sizes: list[str], batches: list[int], rounds: int) -> None:
    """Measure every row once; of several processes the largest value counts."""
    for size in sizes:
        for processes, rate, batch in SETUPS:
            if (size == "1M" and batch > 128) or batch not in batches:
                continue
            found = run_processes(processes, CLASSES[size], rate, batch, rounds)
            most = {name: max(f[name] for f in found) for name in MEASURES}
            setup = {"classes": size, "processes": processes, "rate": rate, "batch": batch}
            row = {**setup, **most, "date": f"{datetime.date.today()}"}
            _rows.append_row(ROWS, row)
            print(row, file=sys.stderr, flush=True)


def make_table(kept: list[dict[str, Any]]) -> list[list[object]]:
    """Return the table with the minimum of every measurement over the turns."""
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
    p = _harness.make_parser(__doc__)
    p.add_argument("action", nargs="?", choices=["run"], help="measure one turn; without it, print the table")
    p.add_argument("--again", action="store_true", help="delete the rows of earlier turns first")
    p.add_argument("--classes", nargs="+", default=list(CLASSES), choices=list(CLASSES))
    p.add_argument("--batch", nargs="+", type=int, default=[128, 1024], choices=[128, 1024])
    p.set_defaults(rounds=2, threads=1)
    args = p.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if args.memory:
        print(json.dumps(measure_process(*json.loads(args.memory[0]))))
        return
    if args.action == "run":
        if args.again:
            ROWS.unlink(missing_ok=True)
        measure_all(args.classes, args.batch, args.rounds)
    kept = _rows.read_rows(ROWS)
    header = ["C", "processes", "batch", "classes drawn", "CPU s", "CPU / one, all", "wall s", "three products, CPU s"]
    header += ["step / products", "peak MiB", "weight MiB", "peak / weight", "turns"]
    notes = (
        "CPU seconds and memory are those of the process with the larger value. Wall-clock seconds were measured on two shared\n"
        "cores. Momentum and, without sampling, the gradient are each as large as the part of the weight in the process."
    )
    how = f"turns over all rows in fresh processes of {args.rounds} steps, the least of each."
    title = "Heads in shards and with drawn classes, d 512, float32"
    _harness.write_report("parallel_heads", title, header, make_table(kept), args, notes, how)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    main()
