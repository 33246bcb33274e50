"""The training loop: one for every experiment, on one process or many, that can be killed at any moment and goes on where it was."""

import math
import os
import pathlib
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from .._extras import require
from .config import Config, from_json
from .folder import Folder
from .log import Log
from .optimizers import build_optimizers, build_schedules, learning_rate
from .storage import load_tree, save_tree
from .tasks import Task, build_task

Progress = Callable[[int, dict[str, Any]], None]


class NonFiniteLossError(ValueError):
    """The loss became infinite or NaN; the message names the last good checkpoint."""


class Experiment:
    """A run of a config in a folder: ``Experiment(config, "runs/x").run()`` trains, measures, and writes everything there is to keep.

    Called again on the same folder it resumes from the last checkpoint, and computes what an uninterrupted run would have: on the same
    CPU with the same number of threads, bit for bit. A folder that holds a run of another config is refused.

    Under ``torchrun`` or ``accelerate launch`` every process constructs the same experiment; batches are divided among them.

    >>> import tempfile
    >>> from hypersphere.experiments import Config, Experiment, recipes
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     metrics = Experiment(recipes.get("lsoftmax-mnist").config("smoke"), folder).run()
    >>> metrics["accuracy"] > 0
    True
    """

    def __init__(self, config: Config, folder: str | os.PathLike[str], *, fresh: bool = False):
        self.config, self.folder = config, Folder(folder)
        if config.threads:
            torch.set_num_threads(config.threads)
        accelerate = require("accelerate")
        accelerate.state.AcceleratorState._reset_state()  # another experiment of this process may have used another precision
        ddp = accelerate.utils.DistributedDataParallelKwargs(find_unused_parameters=True)
        self.accelerator = accelerate.Accelerator(
            mixed_precision=config.precision, cpu=not torch.accelerator.is_available(), kwargs_handlers=[ddp]
        )
        self.main = self.accelerator.is_main_process
        if self.main:
            self.folder.open(config, fresh)
        self.accelerator.wait_for_everyone()
        torch.manual_seed(config.seed)
        self.task: Task = build_task(config)
        self.layout = torch.channels_last if config.channels_last else torch.preserve_format
        if config.channels_last:
            self.task = self.task.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimizers = build_optimizers(config.optimizer, self.task)
        ddp.find_unused_parameters = self.task.partial
        self.wrapped, *prepared = self.accelerator.prepare(self.task, *self.optimizers)
        self.schedules = build_schedules(config, self.optimizers)
        self.prepared = prepared
        self.step = 0
        self.best: float | None = None
        self.measured: dict[str, Any] = {}
        self.resumed = self.folder.last.exists()
        self.log_size = self._resume() if self.resumed else 0
        self.log: Log | None = None
        self.progress: Progress | None = None

    @classmethod
    def resume(cls, folder: str | os.PathLike[str]) -> "Experiment":
        """The experiment a folder holds."""
        path = pathlib.Path(folder) / "config.json"
        if not path.exists():
            raise ValueError(f"{folder} holds no run: there is no config.json in it")
        return cls(from_json(path.read_text(encoding="utf-8")), folder)

    def run(self, progress: Progress | None = None) -> dict[str, float]:
        """Train to the end and return the last measures; ``progress(step, row)`` is called with every row of the log.

        SIGINT and SIGTERM save a checkpoint after the present step and raise ``KeyboardInterrupt``.
        """
        self.progress = progress
        if self.main:
            self.folder.event("resume" if self.resumed else "start", self.step)
            self.log = Log(self.folder.path, self.log_size, self.step)
        try:
            self._loop()
            return self._finish()
        finally:
            if self.log is not None:
                self.log.close()

    def _loop(self) -> None:
        if not self.resumed:
            self._evaluate()
            self._checkpoint()
        with _signals() as stop:
            for batch in self._batches():
                self._train(batch)
                if self.step % self.config.evaluate_every == 0 or self.step == self.config.steps:
                    self._evaluate()
                if self.step % self.config.checkpoint_every == 0 or self.step == self.config.steps:
                    self._checkpoint()
                if self._any(stop.is_set()):
                    self._checkpoint()
                    if self.main:
                        self.folder.event("interrupt", self.step)
                    raise KeyboardInterrupt(f"stopped at step {self.step}; {self.folder.path} goes on from there")

    def _batches(self) -> Iterator[tuple[Tensor, ...]]:
        while self.step < self.config.steps:
            for batch in self.task.loader:
                yield tuple(self._placed(tensor) for tensor in batch)
                if self.step >= self.config.steps:
                    return

    def _placed(self, tensor: Tensor) -> Tensor:
        layout = self.layout if tensor.ndim == 4 else torch.preserve_format
        return tensor.to(self.accelerator.device, non_blocking=True, memory_format=layout)

    def _train(self, batch: tuple[Tensor, ...]) -> None:
        self.wrapped.train()
        for optimizer in self.prepared:
            optimizer.zero_grad()
        loss, parts = self.wrapped(self.step, *batch)
        self.accelerator.backward(loss)
        if self.config.optimizer.clip is not None:
            self.accelerator.clip_grad_norm_(self.wrapped.parameters(), self.config.optimizer.clip)
        for optimizer, schedule in zip(self.prepared, self.schedules, strict=True):
            optimizer.step()
            if not optimizer.step_was_skipped:  # half precision skips a step whose gradient overflowed
                schedule.step()
        self.step += 1
        self.task.advance(self.step)
        due = self.step % self.config.log_every == 0 or self.step in (1, self.config.steps)
        ends = self.step % self.config.checkpoint_every == 0 or self.step == self.config.steps
        if (
            due or ends or loss.device.type == "cpu"
        ):  # elsewhere a look at the loss at every step would wait for the device
            found = torch.stack([loss, *parts.values()]).detach()
            values = self.accelerator.reduce(found.to(torch.promote_types(found.dtype, torch.float32)), "mean").tolist()
            if not math.isfinite(values[0]):
                self._stop(values[0], dict(zip(parts, values[1:], strict=True)))
            if due:
                self._write(
                    {
                        "step": self.step,
                        "loss": values[0],
                        **(dict(zip(parts, values[1:], strict=True)) if len(parts) > 1 else {}),
                        **learning_rate(self.optimizers),
                    }
                )

    @torch.no_grad()
    def _evaluate(self) -> None:
        """On the main process; the random numbers of training are not touched."""
        self.wrapped.eval()
        improved = False
        if self.main:
            with torch.random.fork_rng():
                row = {"step": self.step, **self.task.evaluate(), **self.task.measures()}
            name = self.config.monitor.lstrip("-")
            if name not in row:
                raise ValueError(f"monitor must be one of {', '.join(k for k in row if k != 'step')}, got {name!r}")
            score = -row[name] if self.config.monitor.startswith("-") else row[name]
            self._write(row)
            self.measured = row
            improved = self.best is None or score > self.best
            self.best = score if improved else self.best
        if self._any(improved):
            self._checkpoint(self.folder.best)

    def _state(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "best": self.best,
            "measured": self.measured,
            "task": self.task.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "schedules": [schedule.state_dict() | {"lr_lambdas": []} for schedule in self.schedules],
            "scaler": None if self.accelerator.scaler is None else self.accelerator.scaler.state_dict(),
            "loader": self.task.loader.state_dict(),
            "log": self.log.size if self.log is not None else 0,
        }

    def _checkpoint(self, path: pathlib.Path | None = None) -> None:
        random = require("accelerate.utils").gather_object([_random_state()])
        if self.main:
            save_tree(self._state() | {"random": random}, path or self.folder.last)
        self.accelerator.wait_for_everyone()

    def _resume(self) -> int:
        state = load_tree(self.folder.last)
        self.task.load_state_dict(state["task"])
        for optimizer, stored in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(stored)
        for schedule, stored in zip(self.schedules, state["schedules"], strict=True):
            schedule.load_state_dict(stored | {"lr_lambdas": [None]})
        if self.accelerator.scaler is not None and state["scaler"] is not None:
            self.accelerator.scaler.load_state_dict(state["scaler"])
        self.task.loader.load_state_dict(state["loader"])
        self.step, self.best, self.measured = state["step"], state["best"], state["measured"]
        random = state["random"]
        if len(random) != self.accelerator.num_processes:
            raise ValueError(
                f"{self.folder.last} was written by {len(random)} processes, resume it with as many, got {self.accelerator.num_processes}"
            )
        _set_random_state(random[self.accelerator.process_index])
        return int(state["log"])

    def _finish(self) -> dict[str, float]:
        metrics = {key: value for key, value in self.measured.items() if key != "step"}
        if self.main:
            self.task.eval()
            with torch.random.fork_rng():
                self.folder.finish(self.task, self.config, self.step, metrics)
            self.folder.event("end", self.step)
        self.accelerator.wait_for_everyone()
        return metrics

    def _write(self, row: dict[str, Any]) -> None:
        if self.log is not None:
            self.log.append(row)
        if self.progress is not None and self.main:
            self.progress(self.step, row)

    def _any(self, flag: bool) -> bool:
        if self.accelerator.num_processes == 1:
            return flag
        return bool(self.accelerator.reduce(torch.tensor(float(flag), device=self.accelerator.device)).item())

    def _stop(self, loss: float, parts: dict[str, float]) -> None:
        if self.main:
            self.folder.event("non-finite loss", self.step)
        terms = ", ".join(f"{name} {value:g}" for name, value in parts.items())
        raise NonFiniteLossError(
            f"the loss became {loss} at step {self.step} ({terms}); the last good checkpoint is {self.folder.last} (of step "
            f"{load_tree(self.folder.last)['step']}). Try a smaller optimizer.lr, optimizer.clip=1, or optimizer.warmup"
        )


def _random_state() -> dict[str, Any]:
    state: dict[str, Any] = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def _set_random_state(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set; a second one acts as it did before."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, _: object) -> None:
        stop.set()
        signal.signal(number, before[number])

    for number in before:
        signal.signal(number, handle)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
