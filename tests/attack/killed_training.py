"""Training killed at random times, on one and two processes: the resumed run must equal an uninterrupted one."""

import os
import pathlib
import random
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from . import tally as rows
from .tally import Tally

BLOCKS, ONE, TWO = 3, 60, 30  # blocks, kills per block on one process, kills on two processes
FILES = ("log.jsonl", "metrics.json", "model.safetensors", "best.safetensors", "last.safetensors")
PATIENCE = 4.0  # seconds in which the other processes may end by themselves
AT_MOST = 3  # kills per run before it may finish


def attack(scale: float) -> Iterator[Tally]:
    """Yield a tally for each number of processes."""
    config = _config()
    _warm(config)
    parts = [
        *((f"one process {block}", ONE, 1, 300 + block) for block in range(1, BLOCKS + 1)),
        ("two processes", TWO, 2, 32),
    ]
    for part, count, world, seed in parts:
        if rows.due("kills of training", part):
            yield _kills(Tally("kills of training", part), round(scale * count), config, world, seed)


def _kills(tally: Tally, count: int, config: Any, world: int, seed: int) -> Tally:
    tally.conditions = {"processes": world, "run": "12 steps of CNN-3 on digits with A-Softmax, CoMHE and augmentation"}
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        whole = pathlib.Path(folder) / "whole"
        status, seconds = _run(config, whole, world, None)
        if status != 0:
            tally.broke(f"the undisturbed run ended with {status}")
            return tally
        runs = 0
        while tally.tried < count and runs < 4 * count:
            run, killed = pathlib.Path(folder) / str(runs), 0
            runs += 1
            while killed < AT_MOST:
                status, took = _run(config, run, world, draw.uniform(0, 0.9 * seconds), draw.randrange(world))
                if status == 0:
                    seconds = took if killed == 0 else seconds  # measure again, because the load of the machine changes
                    break
                killed += 1
            if status != 0:
                status, _ = _run(config, run, world, None)
            differing = _differing(whole, run) if status == 0 else f"the resumed run ended with {status}"
            for _ in range(killed):
                tally.check(not differing, differing, "resumed, equal in every byte")
            shutil.rmtree(run, ignore_errors=True)
    return tally


def _differing(whole: pathlib.Path, run: pathlib.Path) -> str:
    names = [n for n in FILES if not (run / n).exists() or (whole / n).read_bytes() != (run / n).read_bytes()]
    left = [p.name for p in run.iterdir() if p.name.endswith(".part") or p.name.startswith(".tmp")]
    return f"differs in {names}, left {left}" if names or left else ""


def _run(config: Any, folder: pathlib.Path, world: int, after: float | None, victim: int = 0) -> tuple[int, float]:
    """Train in forked processes, and kill one ``after`` seconds. Return the status (0 is success) and the seconds."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = time.monotonic()
    pids = [_forked(lambda rank=rank: _train(config, folder, rank, world, port)) for rank in range(world)]
    killed = False
    running, statuses = dict(enumerate(pids)), []
    while running:
        for rank, pid in list(running.items()):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                statuses.append(os.waitstatus_to_exitcode(status))
                del running[rank]
        if after is not None and not killed and time.monotonic() - start > after:
            killed = True
            if victim in running:
                os.kill(running[victim], signal.SIGKILL)
        lonely = killed and after is not None and time.monotonic() - start > after + PATIENCE
        for pid in running.values() if lonely else ():
            # Like a launcher, end the others: they may wait for the killed process at startup.
            os.kill(pid, signal.SIGKILL)
        if time.monotonic() - start > 300:
            for pid in running.values():
                os.kill(pid, signal.SIGKILL)
            return 99, 0.0
        time.sleep(0.002)
    return next((s for s in statuses if s), 0), time.monotonic() - start


def _forked(work: Callable[[], None]) -> int:
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    if not os.environ.get("ATTACK_LOUD"):
        os.dup2(silent, 2)
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    os._exit(status)


def _train(config: Any, folder: pathlib.Path, rank: int, world: int, port: int) -> None:
    from hypersphere.training import Experiment

    if world > 1:
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": str(world)}
        os.environ.update({**address, "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(world)})
    experiment = Experiment(config, folder)
    experiment.run()
    experiment.accelerator.end_training()


def _config() -> Any:
    from hypersphere import models
    from hypersphere.data import CropFlip
    from hypersphere.energy import CoMHE
    from hypersphere.objectives import Annealing, ASoftmax
    from hypersphere.training import Config, CosineRate, Selection, call

    few = {"steps": 12, "evaluate_every": 6, "log_every": 1, "checkpoint_every": 2, "threads": 1, "pictures": False}
    return Config(
        **few,
        batch_size=32,
        timeout=60,
        samples=Selection(measured=60),
        augment=call(CropFlip, pad=2, horizontal=False),
        backbone=call(models.cnn3, table="E.3", width=0.125),
        head=call(ASoftmax, annealing=call(Annealing)),
        energy=call(CoMHE),
        schedule=call(CosineRate),
    )


def _warm(config: Any) -> None:
    """Import modules and read data before forking. Compute no gradient: threads of autograd do not survive a fork."""
    import torch
    import torch._dynamo
    import torch.distributed

    import hypersphere.training.build as build

    torch.set_num_threads(1)
    torch.manual_seed(0)
    build.build_task(config)
    import torch.utils.tensorboard
