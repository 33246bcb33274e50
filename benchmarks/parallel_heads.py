"""Heads of 100k and 1M classes on one and two processes, full and with a tenth of the classes: time and memory of a step.

Batch 128 in all, d = 512, float32, ArcFace; a step is forward, backward and RowSGD with momentum. Every row is measured
in fresh processes of one thread each, by the least CPU time of several steps and the highest resident memory above what
was there before the head. Two processes are gloo on one machine.
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
            cpu, wall = time.process_time(), time.perf_counter()
            step()
            spent = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
            for name, seconds in spent.items():
                found[name] = min(found.get(name, float("inf")), seconds)

    found["memory"] = _harness.measure_peak(work)
    if processes > 1:
        dist.destroy_process_group()
    return found


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
    args = p.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if args.memory:
        print(json.dumps(measured(*json.loads(args.memory[0]))))
        return
    args.threads = 1
    rows: list[list[object]] = []
    for size in args.classes:
        floor = None
        for processes, rate in SETUPS:
            found = run(processes, CLASSES[size], rate, args.rounds)
            cpu, memory = max(f["cpu"] for f in found), max(f["memory"] for f in found)
            floor = floor or cpu
            weight = CLASSES[size] * DIM * 4 / 2**20 / processes
            shown = "all" if rate is None else f"{rate:g}"
            rows.append([size, processes, shown, cpu, cpu / floor, f"{memory:.0f}", f"{weight:.0f}", memory / weight])
            print(rows[-1], file=sys.stderr, flush=True)
    header = ["C", "processes", "classes drawn", "CPU s", "CPU / one, all", "peak MiB", "weight MiB", "peak / weight"]
    notes = (
        "CPU seconds and memory are those of the process that has most of them. Weight, momentum and, without drawing, the\n"
        "gradient are each of the size in the last column but one, the weight that a process holds."
    )
    name = "parallel_heads" if args.classes == list(CLASSES) else "parallel_heads_" + "_".join(args.classes)
    how = f"fresh processes, {args.rounds} steps, the least CPU time of each."
    _harness.report(
        name, "Heads in shards and with drawn classes, batch 128, d 512, float32", header, rows, args, notes, how
    )


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    main()
