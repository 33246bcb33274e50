"""``hypersphere energy`` of a table as large as BERT's words, 30,522 × 768: seconds from the file to the report.

python benchmarks/energy_table.py --record   # with one thread and with two, each in a process of its own
"""

import contextlib
import io
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

import torch
from _harness import parser, report
from safetensors.torch import save_file

NEURONS, DIM, AIM = 30_522, 768, 20


def main() -> None:
    args = parser(__doc__).parse_args()
    if args.memory:
        _measure(args.memory[0], int(args.memory[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "table.safetensors"
        torch.manual_seed(0)
        save_file({"embeddings.word_embeddings.weight": 0.02 * torch.randn(NEURONS, DIM)}, path)
        rows = [[threads, *_child(path, threads), AIM] for threads in (1, 2)]
    notes = (
        f"A made checkpoint with one float32 table of {NEURONS:,} × {DIM} random words, without the start of Python and its "
        "imports. The aim is about how long a user waits: wall-clock seconds, which on a machine with other work include "
        "the time that others were given; CPU seconds are those that the processor worked, in all threads together. All "
        "466 million pairs are measured: the energy, every word's nearest neighbor and the effective rank."
    )
    header = ["threads", "wall-clock s", "CPU s", "shown steps of progress", "peak MiB", "aim, wall-clock s"]
    how = f"one run of each, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end."
    report("energy_table", "The energy of a table of 30,522 words", header, rows, args, notes, how)


def _child(path: pathlib.Path, threads: int) -> list[object]:
    command = [sys.executable, __file__, "--memory", str(path), str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    wall, seconds, shown, peak = done.stdout.split()[-4:]
    return [float(wall), float(seconds), int(shown), round(float(peak))]


def _measure(path: str, threads: int) -> None:
    import time

    from hypersphere.cli import energy as command
    from hypersphere.cli.main import main as run

    torch.set_num_threads(threads)
    steps: list[float] = []

    @contextlib.contextmanager
    def counted():
        yield lambda name, done: steps.append(done)

    command.progress = counted  # the bar of a terminal gets these calls
    start, begun = time.process_time(), time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        assert run(["energy", path, "--json"]) == 0
    seconds, wall = time.process_time() - start, time.perf_counter() - begun
    print(wall, seconds, len(steps), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


if __name__ == "__main__":
    main()
