"""Processes for tests. They start in milliseconds, because they are forked from a server that has imported everything.

A new interpreter needs two seconds of CPU time to import PyTorch. A test of the start-up creates its own interpreter.
"""

import contextlib
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from multiprocessing import forkserver
from typing import Any

import torch

PRELOADED = [
    "pytest",
    "hypothesis",
    "accelerate",
    "torch._dynamo",
    "matplotlib.figure",
    "matplotlib.backends.backend_agg",
    "scipy.stats",
    "sklearn.datasets",
    "sklearn.metrics",
    "tests.training.runs",
    "tests.pool",
    "tests.distributed",
    "hypersphere.cli.fit",
    "hypersphere.cli.train",
    "hypersphere.cli.evaluate",
    "hypersphere.cli.gallery",
]


def forked() -> Any:
    """Return a multiprocessing context whose children are forked from the session's fork server."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with _environment(PYTHONPATH=os.pathsep.join(path or os.getcwd() for path in sys.path), OMP_NUM_THREADS="1"):
        forkserver.ensure_running()
    return context


def stop() -> None:
    """Stop the fork server, so that its CPU time and its children's count as the session's."""
    server = forkserver._forkserver
    if server._forkserver_pid is not None:
        os.kill(server._forkserver_pid, signal.SIGTERM)  # otherwise a child that hangs would block the stop forever
        server._stop()


class Command:
    """``hypersphere <arguments>`` in a folder, in a separate process with text output.

    ``largest`` limits the size of a file in bytes, which simulates a full disk.
    """

    def __init__(self, *arguments: object, cwd: pathlib.Path, largest: int | None = None) -> None:
        self._said = tempfile.TemporaryDirectory()
        words = [str(argument) for argument in arguments]
        target = (words, str(cwd), self._said.name, {**os.environ, "OMP_NUM_THREADS": "1"}, largest)
        self._process = forked().Process(target=_command, args=target)
        self._process.start()

    def interrupt(self) -> None:
        """Send Ctrl-C."""
        os.kill(self._process.pid, signal.SIGINT)

    def end(self, seconds: float = 600) -> "subprocess.CompletedProcess[str]":
        """Wait for the process and return its exit status and output."""
        self._process.join(seconds)
        late = self._process.is_alive()
        if late:
            self._process.kill()
            self._process.join()
        out, err = (pathlib.Path(self._said.name, name).read_text(encoding="utf-8") for name in ("out", "err"))
        self._said.cleanup()
        assert not late, f"it did not end within {seconds} seconds: {out}{err}"
        return subprocess.CompletedProcess([], self._process.exitcode, out, err)


def typed(
    *arguments: object, cwd: pathlib.Path, code: int = 0, largest: int | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a command, check its exit status and return its output."""
    done = Command(*arguments, cwd=cwd, largest=largest).end()
    assert done.returncode == code, done.stderr + done.stdout
    return done


def _command(words: list[str], cwd: str, said: str, environment: dict[str, str], largest: int | None) -> None:
    for name, number in (("out", 1), ("err", 2)):
        opened = os.open(os.path.join(said, name), os.O_CREAT | os.O_WRONLY, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.argv = ["hypersphere", *words]
    sys.path.insert(0, cwd)
    torch.set_num_threads(1)
    if largest is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    from hypersphere.cli.main import main

    sys.exit(main())


@contextlib.contextmanager
def _environment(**names: str) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(names)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
