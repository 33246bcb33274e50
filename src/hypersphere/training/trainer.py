"""The training loop for every task, on one or several processes; a killed run resumes from its last checkpoint."""

import contextlib
import dataclasses
import functools
import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..config import Call, encode, flatten
from ..data import Loader
from ..files import finite, load_tree, save_tree
from .averaging import MovingAverage, load_checkpoint_average
from .errors import raise_non_finite
from .gradient_checkpointing import checkpoint_blocks
from .optimizers import Schedule, build_optimizers, clip_gradients, get_learning_rate, set_rates
from .processes import (
    accelerator,
    any_process,
    move_to_device,
    shard_heads,
    share_buffers,
    signals,
    together,
    unshard_heads,
)
from .results import write_results
from .resume import bound_to, load_weights_of, position, restore, state_of
from .run_folder import RunFolder, RunLog
from .settings import Settings
from .tasks.task import Task
from .weights import start_from

log = logging.getLogger("hypersphere.training")
Progress = Callable[[int, dict[str, Any]], None]


class Callback:
    """Base class of callbacks; a subclass overrides the methods for the events that it needs.

    >>> class Losses(Callback):
    ...     def __init__(self):
    ...         self.seen = []
    ...     def on_log(self, trainer, row):
    ...         self.seen.append(row.get("loss"))
    """

    def on_start(self, trainer: "Trainer") -> None:
        """Handle the start or the continuation of training."""

    def on_step(self, trainer: "Trainer") -> None:
        """Handle the end of a step; ``trainer.step`` already counts it."""

    def on_log(self, trainer: "Trainer", row: dict[str, Any]) -> None:
        """Handle a new row of the log."""

    def on_evaluate(self, trainer: "Trainer", row: dict[str, Any]) -> None:
        """Handle the metrics of an evaluation."""

    def on_end(self, trainer: "Trainer", metrics: dict[str, float]) -> None:
        """Handle the end of training, after all files were written."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state to save in a checkpoint: tensors, numbers, text, lists and dicts."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""


class Trainer:
    """A run of a task in a folder: ``Trainer(task, "runs/x", settings).run()`` trains, evaluates and writes the results.

    Called again on the same folder with the same task and settings it resumes from the last checkpoint, and computes what an
    uninterrupted run would have: on the same CPU with the same number of threads, bit for bit. A folder that holds another
    run is refused; nothing is written before :meth:`run`.

    Under ``torchrun`` every process constructs the same trainer; batches and evaluation are divided among them, and a run may
    be resumed on another number of processes.

    Args:
        task: what is trained: a :class:`~hypersphere.training.tasks.Task` made of any network, head and dataset.
        folder: where everything is written.
        settings: how; the defaults of :class:`Settings` if left out.
        callbacks: objects that are called after steps and evaluations.
        fresh: delete a run that the folder contains.
        document: what ``config.json`` says; by default the settings and a description of the task.
        start: the folder of another run from whose newest checkpoint this one starts, with settings of its own.

    >>> import tempfile
    >>> from hypersphere.training import Classification, Trainer, call
    >>> data = hs.data.InMemory(torch.randn(30, 4), torch.arange(30) % 3, "abc")
    >>> task = Classification(torch.nn.Linear(4, 8), call(hs.objectives.ArcFace), data, batch_size=10)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     0 <= Trainer(task, folder, Settings(steps=2, threads=1, pictures=False)).run()["accuracy"] <= 100
    True
    """

    best: float | None
    guard: Any = contextlib.nullcontext  # what the first evaluation and the first step of a run happen in

    def __init__(
        self,
        task: Task,
        folder: str | os.PathLike[str],
        settings: Settings | None = None,
        *,
        callbacks: Sequence[Callback] = (),
        fresh: bool = False,
        document: Mapping[str, Any] | None = None,
        start: str | os.PathLike[str] | None = None,
    ):
        self.settings = settings = Settings() if settings is None else settings
        self.task, self.folder, self.callbacks = task, RunFolder(folder), list(callbacks)
        if settings.threads:
            torch.set_num_threads(settings.threads)
        self.document = describe(task, settings) if document is None else dict(document)
        self.step, self.updates, self.waited = 0, 0, 0
        with together(lambda: position(self)):
            self.accelerator, ddp = accelerator(settings, self.folder.path)
            self.main: bool = self.accelerator.is_main_process
            self._prepare(ddp)
        self.best, self.stopped = None, False
        self.extra = False  # whether the newest checkpoint was written by an interruption, between two regular ones
        self.measured: dict[str, Any] = {}
        self.no_embedder: str | None = None  # the reason, once the run has ended without an embedder file
        self.log: RunLog | None = None
        self.progress: Progress | None = None
        self._fresh, self._start = fresh, None if start is None else RunFolder(start)

    @functools.cached_property
    def bound(self) -> dict[str, Any]:
        """The settings, data digest and number of threads that a checkpoint of this run must match."""
        return bound_to(self)

    def _prepare(self, ddp: Any) -> None:
        settings, task = self.settings, self.task
        if isinstance(task.loader, Loader):
            task.loader.check_shares()
        task.logged_energy = {"s": settings.energy_s, "half_space": settings.energy_half_space}
        if settings.weights is not None and not task.started:
            task.started = start_from(task.model, settings.weights)
        if settings.gradient_checkpointing:
            checkpoint_blocks(task.model)
        if settings.channels_last:
            task.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        shard_heads(task, self.accelerator.device, self.accelerator.num_processes)
        self.optimizers = build_optimizers(settings, task)
        schedule = settings.schedule.build() if isinstance(settings.schedule, Call) else settings.schedule
        assert isinstance(schedule, Schedule)
        self.schedule = schedule
        set_rates(self.optimizers, schedule, 0, settings.steps)
        ddp.find_unused_parameters = task.partial
        self.wrapped, *self.prepared = self.accelerator.prepare(task, *self.optimizers)
        if settings.compile:
            task.compile_model()
        self.ema = None if settings.ema is None else MovingAverage(task.model, settings.ema)

    def run(self, progress: Progress | None = None) -> dict[str, float]:
        """Train to the end and return the last metrics; ``progress(step, row)`` is called with every row of the log.

        SIGINT and SIGTERM save a checkpoint after the present step and raise ``KeyboardInterrupt``. A loss or weights that
        are not finite are a :class:`NonFiniteLossError`; the loss of another process is a
        :class:`~hypersphere.training.processes.LostProcessError`, at once or after ``timeout`` seconds of silence.
        """
        self.progress = progress
        with together(lambda: position(self)):
            return self._run()

    def _run(self) -> dict[str, float]:
        try:
            if self.main:
                self.folder.open(self.document, fresh=self._fresh)
            self.accelerator.wait_for_everyone()
            self._fresh, resumed = False, bool(self.folder.checkpoints())
            size = restore(self, self.folder.load()) if resumed else 0
            if not resumed and self._start is not None:
                restore(self, self._start.load(), other=True)
            if self.main:
                self.folder.event("resume" if resumed else "start", self.step)
                log.info("%s: %s at step %d", self.folder.path, "resume" if resumed else "start", self.step)
                self.log = RunLog(self.folder.path, size, self.step)
                self.folder.record(*self.log.boards())
            if self.settings.trackers:
                self.accelerator.init_trackers("hypersphere", _spell_settings(self.document))
            for callback in self.callbacks:
                callback.on_start(self)
            self._loop(resumed)
            return self._finish()
        except (ValueError, RuntimeError, MemoryError):
            self.folder.failed = self.main and self.step == 0  # a refused run deletes its new folder
            raise
        finally:
            if self.log is not None:
                self.log.close()
                self.log = None
            for tracker in self.accelerator.trackers:
                tracker.finish()
            self.accelerator.trackers = []
            self.folder.close()

    def _loop(self, resumed: bool) -> None:
        if not resumed:
            with self.guard():
                self._evaluate()
            self._checkpoint()
        settings, guard = self.settings, contextlib.nullcontext if resumed else self.guard
        with signals() as stop:
            for batches in self._batches():
                with guard():
                    self._train(batches)
                guard = contextlib.nullcontext
                if self.step % settings.evaluate_every == 0 or self.step == settings.steps:
                    self._evaluate()
                regular = self.step % settings.checkpoint_every == 0 or self.step == settings.steps or self.stopped
                if regular:
                    self._checkpoint()
                if any_process(self.accelerator, stop.is_set()):
                    if not regular:
                        self._checkpoint(extra=True)
                    if self.main:
                        self.folder.event("interrupt", self.step)
                    raise KeyboardInterrupt(f"stopped at step {self.step}; {self.folder.path} goes on from there")

    def _batches(self) -> Iterator[list[tuple[Tensor, ...]]]:
        """Yield the batches of each step, ``accumulate`` at a time."""
        held: list[tuple[Tensor, ...]] = []
        while self.step < self.settings.steps and not self.stopped:
            for batch in self.task.loader:
                held.append(move_to_device(batch, self.accelerator.device, self.settings.channels_last))
                if len(held) == self.settings.accumulate:
                    yield held
                    held = []
                    if self.step >= self.settings.steps or self.stopped:
                        return

    def _train(self, batches: list[tuple[Tensor, ...]]) -> None:
        if not self.wrapped.training:
            self.wrapped.train()
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        total: Tensor | None = None
        for i, batch in enumerate(batches):
            last = i == len(batches) - 1
            with contextlib.nullcontext() if last else self.accelerator.no_sync(self.wrapped):
                loss, parts = self.wrapped(self.step, *batch)
                self.accelerator.backward(loss / len(batches))
            found = torch.stack([loss, *parts.values()]).detach()
            found = found.to(torch.promote_types(found.dtype, torch.float32)) / len(batches)
            total = found if total is None else total + found
        assert total is not None
        if self.settings.clip is not None:
            self.accelerator.unscale_gradients()
            clip_gradients(self.task.parameters(), self.settings.clip)
        # accelerate's wrapper is needed only for scaled gradients. It is slow: it looks for installed packages in every step.
        scaled = self.accelerator.scaler is not None
        for optimizer in self.prepared if scaled else self.optimizers:
            optimizer.step()
        if not (scaled and any(one.step_was_skipped for one in self.prepared)):  # float16 skips a step on overflow
            self.updates += 1
        self.step += 1
        set_rates(self.optimizers, self.schedule, self.updates, self.settings.steps)
        self.task.advance(self.step)
        if self.ema is not None:
            self.ema.update(self.task.model)
        for callback in self.callbacks:
            callback.on_step(self)
        self._record(total, list(parts))

    def _record(self, total: Tensor, names: list[str]) -> None:
        settings = self.settings
        due = self.step % settings.log_every == 0 or self.step in (1, settings.steps)
        ends = self.step % settings.checkpoint_every == 0 or self.step == settings.steps
        if not (due or ends or total.device.type == "cpu"):  # reading every loss would wait for the device
            return
        values = self.accelerator.reduce(total, "mean").tolist()
        if not math.isfinite(values[0]):
            terms = ", ".join(f"{name} {value:g}" for name, value in zip(names, values[1:], strict=True))
            raise_non_finite(self, f"the loss became {values[0]} at step {self.step} ({terms})")
        if due:
            parts = dict(zip(names, values[1:], strict=True)) if len(names) > 1 else {}
            self._write({"step": self.step, "loss": values[0], **parts, **get_learning_rate(self.optimizers)})

    @torch.no_grad()
    def _evaluate(self) -> None:
        """Evaluate on all processes, without changing the random states of training."""
        self.wrapped.eval()
        share_buffers(self.task)
        with (
            self.ema.use_averaged_weights(self.task.model) if self.ema is not None else contextlib.nullcontext(),
            torch.random.fork_rng(),
        ):
            row = {"step": self.step, **self.task.evaluate(), **self.task.measures()}
        if not math.isfinite(row.get("feature_norm", 0.0)):
            raise_non_finite(self, f"the features are not finite at step {self.step}")
        name = self.settings.monitor.lstrip("-")
        if name not in row:
            raise ValueError(f"monitor must be one of {', '.join(k for k in row if k != 'step')}, got {name!r}")
        score = -row[name] if self.settings.monitor.startswith("-") else row[name]
        score = score if math.isfinite(score) else -math.inf  # undefined is never the best
        self._write(row)
        self.measured = row
        improved = any_process(self.accelerator, self.main and (self.best is None or score > self.best))
        self.best = score if improved else self.best
        self.waited = 0 if improved else self.waited + 1
        self.stopped = self.settings.patience is not None and self.waited >= self.settings.patience
        self.schedule.observe(score)
        for callback in self.callbacks:
            callback.on_evaluate(self, row)
        if improved:
            self._checkpoint(best=True)

    def _checkpoint(self, best: bool = False, extra: bool = False) -> None:
        state = {**state_of(self), "extra": extra}
        if not finite({key: state[key] for key in ("task", "optimizers", "ema")}):
            raise_non_finite(self, f"weights or the optimizer's state are not finite at step {self.step}")
        if self.main and best:
            self.folder.record(self.folder.best.name)
            save_tree(state, self.folder.best)
            log.info("step %d: best checkpoint so far", self.step)
        elif self.main:
            # The checkpoint of an interruption is replaced by the next one, so it never enters the average.
            self.folder.checkpoint(state, max(self.settings.keep, self.settings.average), replace=self.extra)
            log.info("step %d: checkpoint", self.step)
        if not best:
            self.extra = extra
        self.accelerator.wait_for_everyone()

    def _finish(self) -> dict[str, float]:
        self.task.eval()
        if self.settings.keep_best and self.folder.best.exists():
            self.measured = load_weights_of(self, load_tree(self.folder.best))
        elif self.ema is not None:
            self.ema.load_into(self.task.model)
        elif self.settings.average > 1:
            load_checkpoint_average(self.task, self.folder.checkpoints()[: self.settings.average])
            with torch.no_grad(), torch.random.fork_rng():
                self.measured = {"step": self.step, **self.task.evaluate(), **self.task.measures()}
        metrics = {key: value for key, value in self.measured.items() if key != "step"}
        unshard_heads(self.task)
        if self.main:
            with torch.random.fork_rng():
                self.no_embedder = write_results(self.task, self.settings, self.folder, self.step, metrics)
            self.folder.event("end", self.step)
        self.accelerator.wait_for_everyone()
        for callback in self.callbacks:
            callback.on_end(self, metrics)
        return metrics

    def _write(self, row: dict[str, Any]) -> None:
        if self.log is not None:
            self.log.append(row)
            if self.accelerator.trackers:
                self.accelerator.log({key: value for key, value in row.items() if key != "step"}, step=self.step)
        if self.progress is not None and self.main:
            self.progress(self.step, row)
        for callback in self.callbacks:
            callback.on_log(self, row)


def describe(task: Task, settings: Settings) -> dict[str, Any]:
    """Return the content of ``config.json`` for a task made of objects: the settings, and a description of the task."""
    kept = {field.name: _plain(getattr(settings, field.name)) for field in dataclasses.fields(settings)}
    names = {"class": type(task).__qualname__, "model": type(task.model).__qualname__}
    return {"settings": kept, "task": {**names, **{str(k): _plain(v) for k, v in task.summary().items()}}}


def _spell_settings(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings on one level, with lists as text, because trackers accept numbers and text only."""
    return {
        key: value if isinstance(value, bool | int | float | str) else str(value)
        for key, value in flatten(document).items()
    }


def _plain(value: Any) -> Any:
    try:
        return encode(value, defaults=isinstance(value, Call))
    except ValueError:
        return getattr(value, "__qualname__", type(value).__qualname__)
