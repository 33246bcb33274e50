"""Small experiments for tests, and processes that are killed while they run one."""

import os
import pathlib
import signal
import time
from typing import Any

import torch

from hypersphere import models
from hypersphere.data import CropFlip
from hypersphere.energy import CoMHE
from hypersphere.objectives import Annealing, ArcFace, ASoftmax
from hypersphere.training import Classification, Config, CosineRate, Experiment, Settings, Trainer, call, replace
from hypersphere.training.processes import seed_generators
from tests.processes import forked
from tests.training.own import Net, Squares


def small(nested: dict[str, Any] | None = None, /, **changes: Any) -> Config:
    """Return a config of a few steps in which everything has a state: λ, projection bases, momentum."""
    config = Config(
        steps=60,
        evaluate_every=20,
        log_every=2,
        checkpoint_every=4,
        threads=1,
        batch_size=64,
        augment=call(CropFlip, pad=2, horizontal=False),
        backbone=call(models.cnn3, table="E.3", width=0.125),
        head=call(ASoftmax, annealing=call(Annealing)),
        energy=call(CoMHE),
        schedule=call(CosineRate),
    )
    return replace(config, **{"optimizer.lr": 0.05, **(nested or {}), **changes})


def own(settings: Settings, folder: str | pathlib.Path, **options: Any) -> Trainer:
    """Return a trainer of a network and a dataset that the library does not know."""
    seed_generators(0)
    head = call(ArcFace, m=0.2, scale=8.0)
    data = {"train": Squares(), "measured": Squares(30, seed=1), "batch_size": 16, **options}
    return Trainer(Classification(Net(), head, **data), folder, settings)


def train(config: Settings, folder: str, ready: Any, die_at_write: int | None, die_at_step: int | None) -> None:
    """Run in this process. Optionally die as by ``kill -9`` while the n-th checkpoint is written, or at a step."""
    torch.set_num_threads(1)
    if die_at_write is not None:
        _die_in(die_at_write)
    trainer = Experiment(config, folder) if isinstance(config, Config) else own(config, folder)
    ready.set()

    def progress(step: int, row: dict[str, Any]) -> None:
        if step == die_at_step:
            os.kill(os.getpid(), signal.SIGKILL)

    trainer.run(progress)


def run_and_kill(
    config: Settings,
    folder: pathlib.Path,
    after: float | None = None,
    *,
    early: bool = False,
    die_at_write: int | None = None,
    die_at_step: int | None = None,
) -> tuple[int, float]:
    """Train in a child process. Kill it ``after`` seconds of training, or that long after its start if ``early``.

    Without ``after`` it is not killed. A :class:`Config` is an experiment. Other :class:`Settings` train the network
    and dataset of :func:`own`.

    Returns:
        The exit code (−9 if killed, 0 if finished) and the seconds of training.
    """
    context = forked()
    ready = context.Event()
    child = context.Process(target=train, args=(config, str(folder), ready, die_at_write, die_at_step))
    child.start()
    while not early and child.is_alive() and not ready.wait(0.02):
        pass
    start = time.monotonic()
    child.join(after)
    if child.is_alive():
        os.kill(child.pid, signal.SIGKILL)
    child.join()
    return child.exitcode, time.monotonic() - start


def _die_in(count: int) -> None:
    import safetensors.torch

    save, calls = safetensors.torch.save_file, iter(range(1, 1 << 30))

    def dying(tensors: Any, filename: Any, metadata: Any = None) -> None:
        save(tensors, filename, metadata)
        if next(calls) == count:
            os.truncate(filename, os.path.getsize(filename) // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    safetensors.torch.save_file = dying
