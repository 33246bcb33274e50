"""Several processes on one machine, for tests: gloo, rendezvous through a file."""

import os
import tempfile
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from tests.processes import forked


def run(worker: Callable[..., Any], *args: Any, processes: int = 2) -> list[Any]:
    """Run ``worker(rank, *args)`` in each process of one gloo group. Return the results by rank.

    The worker must be a module-level function; its result is saved with torch.save and must load with ``weights_only``.
    """
    with tempfile.TemporaryDirectory() as folder:
        forked()  # starts the server process that forks the workers
        mp.start_processes(_enter, (worker, folder, processes, args), nprocs=processes, start_method="forkserver")
        return [torch.load(os.path.join(folder, f"{rank}.pt"), weights_only=True) for rank in range(processes)]


def _enter(rank: int, worker: Callable[..., Any], folder: str, processes: int, args: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=processes)
    try:
        torch.save(worker(rank, *args), os.path.join(folder, f"{rank}.pt"))
    finally:
        dist.destroy_process_group()
