"""Three worker processes with gloo groups of one, two and three ranks. Tests send them functions to run."""

import contextlib
import os
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist

from tests.processes import forked

SIZE = 3


class Pool:
    """Worker processes on one machine.

    ``run(function, *args, processes=2)`` calls ``function(group, *args)`` on two ranks at once and returns the results
    in the order of the ranks. The function must be defined at module level. Nothing is shared between calls. If a rank
    raises, :meth:`run` raises.
    """

    def __init__(self) -> None:
        context = forked()
        self._folder = tempfile.TemporaryDirectory()
        self._connections: list[Connection] = []
        self._processes = []
        for rank in range(SIZE):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, self._folder.name, theirs), daemon=True)
            process.start()
            self._connections.append(ours)
            self._processes.append(process)

    def run(self, function: Callable[..., Any], *args: Any, processes: int = 2) -> list[Any]:
        """Return the results of ``function`` on the first ``processes`` ranks."""
        chosen = self._connections[:processes]
        for connection in chosen:
            connection.send((function, args, processes))
        answers = []
        for connection in chosen:
            assert connection.poll(180), (
                f"{function.__name__} on {processes} processes did not return within three minutes"
            )
            answers.append(connection.recv())
        for good, answer in answers:
            assert good, answer
        return [answer for _, answer in answers]

    def close(self) -> None:
        """Stop the processes."""
        for connection, process in zip(self._connections, self._processes, strict=True):
            with contextlib.suppress(OSError):  # a failed test may have ended the process
                connection.send(None)
            process.join(10)
            if process.is_alive():
                process.terminate()
        self._folder.cleanup()


def _serve(rank: int, folder: str, connection: Connection) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{os.path.join(folder, 'meet')}", rank=rank, world_size=SIZE)
    groups = {size: dist.new_group(list(range(size))) for size in range(1, SIZE + 1)}
    while (job := connection.recv()) is not None:
        function, args, size = job
        try:
            connection.send((True, function(groups[size], *args)))
        except BaseException:
            connection.send((False, traceback.format_exc()))
    dist.destroy_process_group()
