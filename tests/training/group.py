"""Run one training in several forked processes without a launcher. A process can be killed at a chosen moment."""

import os
import pathlib
import signal
import socket
import time
from typing import Any, NamedTuple

import torch
from torch import nn

from hypersphere.energy import MHE
from hypersphere.objectives import ArcFace, RowSGD, SphereFace
from hypersphere.training import Classification, LostProcessError, Settings, Trainer, call
from hypersphere.training.tasks.classification import Headed
from tests.processes import forked
from tests.training.own import Net, Squares
from tests.training.runs import _die_in

LOST = 3


class Death(NamedTuple):
    """Send process ``rank`` a signal in its ``count``-th call of a task's method, or at "start", "made" or "write"."""

    rank: int
    where: str
    count: int = 1
    number: int = signal.SIGKILL


def plain(
    settings: Settings, folder: pathlib.Path, *, shards: bool = False, sample: float | None = None, plus: bool = False
) -> Trainer:
    """Return a trainer of a linear network, whose losses do not depend on how a batch is divided.

    ``shards`` divides the head too. ``plus`` trains SphereFace+ (A-Softmax and the energy of the batch's classes) with
    clipped gradients.
    """
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(432, 6))
    if plus:
        model = Headed(net, SphereFace(6, 5, m=2, parallel=shards, sub_centers=2))
        task = Classification(
            model, model.classifier, Squares(), Squares(30, seed=1), batch_size=12, regularizers=[MHE(model)]
        )
        return Trainer(task, folder, settings.replace(clip=0.2))
    head = call(ArcFace, m=0.2, scale=8.0, parallel=shards, **({} if sample is None else {"sample": sample}))
    if sample is not None:
        settings = settings.replace(optimizer=call(RowSGD, lr=0.1, momentum=0.9))
    return Trainer(Classification(net, head, Squares(), Squares(30, seed=1), batch_size=12), folder, settings)


def own(settings: Settings, folder: pathlib.Path) -> Trainer:
    """Return a trainer of a network with dropout and batch normalization."""
    torch.manual_seed(0)
    head = call(ArcFace, m=0.2, scale=8.0)
    return Trainer(Classification(Net(), head, Squares(), Squares(30, seed=1), batch_size=16), folder, settings)


def run_group(
    count: int, make: Any, settings: Settings, folder: pathlib.Path, *, death: Death | None = None, **options: Any
) -> tuple[list[int | None], float]:
    """Train on several processes. Return the exit codes (None if one had to be killed) and the elapsed seconds."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    context, start = forked(), time.monotonic()
    arguments = (count, port, make, settings, folder, death, options)
    children = [context.Process(target=_enter, args=(rank, *arguments)) for rank in range(count)]
    for child in children:
        child.start()
    codes: list[int | None] = []
    order = sorted(
        range(count), key=lambda rank: death is not None and rank == death.rank
    )  # processes that do not end are last
    for rank in order:
        child = children[rank]
        child.join(150 if rank == order[0] or death is None or death.number == signal.SIGKILL else 0)
        codes.append(None if child.is_alive() else child.exitcode)
    seconds = time.monotonic() - start
    for child in children:
        child.kill()
        child.join()
    return [codes[order.index(rank)] for rank in range(count)], seconds


def _enter(
    rank: int,
    world: int,
    port: int,
    make: Any,
    settings: Settings,
    folder: pathlib.Path,
    death: Death | None,
    options: dict[str, Any],
) -> None:
    torch.set_num_threads(1)
    if world > 1:
        names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "MASTER_PORT": port}
        os.environ.update({name: str(value) for name, value in names.items()})
        os.environ.update({"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"})
    stop = options.pop("stop", None)
    death = death if death is not None and death.rank == rank else Death(rank, "")
    if death.where == "write":
        _die_in(death.count)
    _reached(death, "start")
    try:
        trainer = make(settings, folder, **options)
        _reached(death, "made")
        if hasattr(trainer.task, death.where):
            _die_in_call(trainer.task, death)
        seen = _batches(trainer.task)
        trainer.run(lambda step, _: os.kill(os.getpid(), signal.SIGINT) if step == stop else None)
    except KeyboardInterrupt:
        pass
    except LostProcessError as error:
        folder.with_name(f"{folder.name}-said-{rank}").write_text(str(error))
        os._exit(LOST)
    folder.with_name(f"{folder.name}-seen-{rank}").write_text(" ".join(map(str, sorted(set(seen)))))


def _reached(death: Death, where: str) -> None:
    if death.where == where:
        os.kill(os.getpid(), death.number)


def _die_in_call(task: Any, death: Death) -> None:
    method, calls = getattr(task, death.where), iter(range(1, 1 << 30))

    def dying(*args: Any) -> Any:
        if next(calls) == death.count:
            os.kill(os.getpid(), death.number)
        return method(*args)

    setattr(task, death.where, dying)


def _batches(task: Any) -> list[int]:
    """Record the batch sizes of this process."""
    method, seen = task.objectives, []

    def counted(inputs: Any, labels: Any) -> Any:
        seen.append(len(labels))
        return method(inputs, labels)

    task.objectives = counted
    return seen
