"""Measure the seconds that ``hypersphere energy`` takes for an embedding table of BERT's size, 30,522 × 768.

python benchmarks/energy_table.py --record   # with one thread and with two, each in a separate process
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
from _harness import make_parser, write_report
from safetensors.torch import save_file

NEURONS, DIM, AIM = 30_522, 768, 20


def main() -> None:
    args = make_parser(__doc__).parse_args()
    if args.memory:
        _measure(args.memory[0], int(args.memory[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "table.safetensors"
        torch.manual_seed(0)
        save_file({"embeddings.word_embeddings.weight": 0.02 * torch.randn(NEURONS, DIM)}, path)
        rows = [[threads, *_run_child(path, threads), AIM] for threads in (1, 2)]
    notes = (
        f"A synthetic checkpoint with one float32 table of {NEURONS:,} × {DIM} random words. The start of Python and its imports "
        "are not included. The goal is for wall-clock seconds, which on a busy machine include the time of other processes; "
        "CPU seconds are the sum over all threads. All 466 million pairs are measured: the energy, the nearest neighbor of every "
        "word and the effective rank."
    )
    header = ["threads", "wall-clock s", "CPU s", "progress updates", "peak MiB", "aim, wall-clock s"]
    how = f"one run of each, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end."
    write_report("energy_table", "The energy of a table of 30,522 words", header, rows, args, notes, how)


def _run_child(path: pathlib.Path, threads: int) -> list[object]:
    """Return wall-clock seconds, CPU seconds, progress updates and peak MiB of a fresh process."""
    command = [sys.executable, __file__, "--memory", str(path), str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    wall, seconds, updates, peak = done.stdout.split()[-4:]
    return [float(wall), float(seconds), int(updates), round(float(peak))]


def _measure(path: str, threads: int) -> None:
    import time

    from hypersphere.cli import energy as command
    from hypersphere.cli.main import main as run

    torch.set_num_threads(threads)
    steps: list[float] = []

    @contextlib.contextmanager
    def count_progress():
        yield lambda name, done: steps.append(done)

    command.show_progress = count_progress  # replaces the progress bar
    start, begun = time.process_time(), time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        assert run(["energy", path, "--json"]) == 0
    seconds, wall = time.process_time() - start, time.perf_counter() - begun
    print(wall, seconds, len(steps), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


if __name__ == "__main__":
    main()
