"""Heads of 100k and 1M classes on one and two processes, full and with a tenth of the classes: time and memory of a step.

Batch 128 in all, d = 512, float32, ArcFace; a step is forward, backward and RowSGD with momentum. The rows are measured in
turn, several times, in fresh processes of one thread each: the least CPU time of all steps counts, so that what else the
machine does falls on all rows alike, and the highest resident memory above what was there before the head. Between the
steps the three matrix products that a step cannot do without are timed as a floor. Two processes are gloo on one machine.
"""

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

import _harness
import torch
import torch.distributed as dist

from hypersphere.objectives import ArcFace, RowSGD

BATCH, DIM = 128, 512
CLASSES = {"100k": 100_000, "1M": 1_000_000}
SETUPS = [(1, None), (2, None), (1, 0.1), (2, 0.1)]


def measured(rank: int, processes: int, classes: int, rate: float | None, rounds: int, folder: str) -> dict[str, float]:
    """CPU and wall seconds of a step on this process, and its highest memory."""
    if processes > 1:
        meet = f"file://{folder}/meet"
        dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=processes)
    step_of(1_000 * processes, rate, processes)()  # code and libraries are loaded
    gc.collect()
    found: dict[str, float] = {}

    def work() -> None:
        step = step_of(classes, rate, processes)
        step()
        for _ in range(rounds):
            found["cpu"] = min(found.get("cpu", float("inf")), spent(step))

    found["memory"] = _harness.measure_peak(work)
    floor = products_of(-(-int(classes * (rate or 1)) // processes))
    floor()
    step = step_of(classes, rate, processes)
    for _ in range(rounds):  # again in turn with the floor, which is no part of the memory
        found["floor"] = min(found.get("floor", float("inf")), spent(floor))
        found["cpu"] = min(found["cpu"], spent(step))
    if processes > 1:
        dist.destroy_process_group()
    return found


def spent(work: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def products_of(rows: int) -> Callable[[], object]:
    """The logits, the gradient of the features and that of the weight, as plain matrix products in blocks of classes."""
    x, chunk = torch.randn(BATCH, DIM), 2048
    w, gradient, features = torch.randn(rows, DIM), torch.empty(rows, DIM), torch.zeros(BATCH, DIM)

    def products() -> None:
        for start in range(0, rows, chunk):
            part = slice(start, start + chunk)
            z = x @ w[part].T
            features.addmm_(z, w[part], alpha=1e-9)
            torch.mm(z.T, x, out=gradient[part])

    return products


def step_of(classes: int, rate: float | None, processes: int):
    """One training step of a new head, as a function."""
    head = ArcFace(DIM, classes, sample=rate, device="meta" if processes > 1 else None)
    if processes > 1:
        head.shard()
    optimizer = RowSGD(head.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    rank = dist.get_rank() if processes > 1 else 0
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(BATCH, DIM, generator=generator).chunk(processes)[rank]
    y = torch.randint(0, classes, (BATCH,), generator=generator).chunk(processes)[rank]

    def step() -> None:
        optimizer.zero_grad()
        head(x.detach().requires_grad_(), y).backward()
        optimizer.step()
        head.step()

    return step


def run(processes: int, classes: int, rate: float | None, rounds: int) -> list[dict[str, float]]:
    """What each process measured."""
    with tempfile.TemporaryDirectory() as folder:
        commands = [
            [sys.executable, __file__, "--memory", json.dumps([rank, processes, classes, rate, rounds, folder])]
            for rank in range(processes)
        ]
        started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
        outputs = [process.communicate()[0] for process in started]
        if any(process.returncode for process in started):
            raise RuntimeError("a process failed")
        return [json.loads(output.strip().splitlines()[-1]) for output in outputs]


def main() -> None:
    p = _harness.parser(__doc__)
    p.add_argument("--classes", nargs="+", default=list(CLASSES), choices=list(CLASSES))
    p.add_argument("--turns", type=int, default=3, help="how often all rows are measured, one after the other")
    p.set_defaults(rounds=3)
    args = p.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if args.memory:
        print(json.dumps(measured(*json.loads(args.memory[0]))))
        return
    args.threads = 1
    rows: list[list[object]] = []
    for size in args.classes:
        best: dict[tuple[int, float | None], dict[str, float]] = {}
        for turn in range(args.turns):
            for setup in SETUPS:
                found = run(setup[0], CLASSES[size], setup[1], args.rounds)
                new = {name: max(f[name] for f in found) for name in ("cpu", "floor", "memory")}
                old = best.get(setup, new)
                best[setup] = {name: min(new[name], old[name]) for name in new}
                print(size, turn, setup, new, file=sys.stderr, flush=True)
        whole = best[SETUPS[0]]["cpu"]
        for (processes, rate), b in best.items():
            weight = CLASSES[size] * DIM * 4 / 2**20 / processes
            cells = [size, processes, "all" if rate is None else f"{rate:g}", f"{b['cpu']:.3f}", b["cpu"] / whole]
            cells += [f"{b['floor']:.3f}", b["cpu"] / b["floor"], f"{b['memory']:.0f}", f"{weight:.0f}"]
            rows.append([*cells, b["memory"] / weight])
    header = ["C", "processes", "classes drawn", "CPU s", "CPU / one, all", "three products, CPU s", "step / products"]
    header += ["peak MiB", "weight MiB", "peak / weight"]
    notes = (
        "CPU seconds and memory are those of the process that has most of them. Weight, momentum and, without drawing, the\n"
        "gradient are each of the size in the last column but one, the weight that a process holds."
    )
    name = "parallel_heads" if args.classes == list(CLASSES) else "parallel_heads_" + "_".join(args.classes)
    how = f"{args.turns} turns over all rows in fresh processes of {2 * args.rounds} steps, the least CPU time of each."
    _harness.report(
        name, "Heads in shards and with drawn classes, batch 128, d 512, float32", header, rows, args, notes, how
    )


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    main()
