"""The training loop for every task, on one or several processes; a killed run resumes from its last checkpoint."""

import contextlib
import dataclasses
import functools
import hashlib
import logging
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from .._extras import require
from ..config import Call, encode, flatten
from ..data import Loader
from ..files import is_finite, load_tree, save_tree
from .averaging import MovingAverage, load_checkpoint_average
from .datasets import is_stream
from .errors import NonFiniteLossError
from .gradient_checkpointing import checkpoint_blocks
from .optimizers import Schedule, build_optimizers, clip_gradients, get_learning_rate, set_rates
from .processes import (
    broadcast_buffers,
    build_accelerator,
    catch_signals,
    explain_lost_process,
    gather_states,
    get_random_state,
    is_any,
    load_average,
    load_optimizer,
    move_to_device,
    seed_generators,
    set_random_state,
    shard_heads,
    unshard_heads,
)
from .results import write_results
from .run_folder import RunFolder, RunLog, describe_differences, normalize_document
from .settings import Settings
from .tasks.task import Task
from .weights import start_from

log = logging.getLogger("hypersphere.training")
Progress = Callable[[int, dict[str, Any]], None]
# Attributes of a trainer that a checkpoint stores under the same names.
POSITION = ("step", "updates", "best", "waited", "stopped", "measured", "extra")


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

    If it is called again on the same folder with the same task and settings, it resumes from the last checkpoint. The results
    equal those of an uninterrupted run, bit for bit on the same CPU with the same number of threads. A folder that contains
    another run is refused. Nothing is written before :meth:`run`.

    Under ``torchrun`` every process constructs the same trainer. Batches and evaluation are divided among the processes, and a
    run may be resumed on another number of processes.

    Args:
        task: the :class:`~hypersphere.training.tasks.Task` to train, made of any network, head and dataset.
        folder: folder for all files of the run.
        settings: settings of the training; the defaults of :class:`Settings` if left out.
        callbacks: objects that are called after steps and evaluations.
        fresh: delete a run that the folder contains.
        document: content of ``config.json``; by default the settings and a description of the task.
        start: folder of another run from whose newest checkpoint this run starts, with its own settings.

    Raises:
        ValueError: If the parts do not fit together, or a setting is not accepted.

    >>> import tempfile
    >>> from hypersphere.training import Classification, Trainer, call
    >>> data = hs.data.InMemory(torch.randn(30, 4), torch.arange(30) % 3, "abc")
    >>> task = Classification(torch.nn.Linear(4, 8), call(hs.objectives.ArcFace), data, batch_size=10)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     0 <= Trainer(task, folder, Settings(steps=2, threads=1, pictures=False)).run()["accuracy"] <= 100
    True
    """

    best: float | None
    guard: Any = contextlib.nullcontext  # context manager around the first evaluation and the first step of a run

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
        with explain_lost_process(self._describe_position):
            self.accelerator, ddp = build_accelerator(settings, self.folder.path)
            self.main: bool = self.accelerator.is_main_process
            self._prepare(ddp)
        self.best, self.stopped = None, False
        self.extra = False  # whether an interruption wrote the newest checkpoint, between two regular ones
        self.measured: dict[str, Any] = {}
        self.no_embedder: str | None = None  # the reason, once the run has ended without an embedder file
        self.log: RunLog | None = None
        self.progress: Progress | None = None
        self._fresh, self._start = fresh, None if start is None else RunFolder(start)

    @functools.cached_property
    def conditions(self) -> dict[str, Any]:
        """The settings, data digest and number of threads that a checkpoint of this run must match."""
        settings = normalize_document(self.document)
        return {"settings": settings, "data": compute_data_digest(self.task), "threads": torch.get_num_threads()}

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
        ddp.find_unused_parameters = task.has_unused_parameters
        self.wrapped, *self.prepared = self.accelerator.prepare(task, *self.optimizers)
        if settings.compile:
            task.compile_model()
        self.ema = None if settings.ema is None else MovingAverage(task.model, settings.ema)

    def run(self, progress: Progress | None = None) -> dict[str, float]:
        """Train to the end and return the last metrics.

        Args:
            progress: Called with ``(step, row)`` for every row of the log.

        Raises:
            ValueError: If the folder contains another run or other files.
            NonFiniteLossError: If the loss or the weights are not finite.
            LostProcessError: If another process of the run dies, or does not answer within ``timeout`` seconds.
            KeyboardInterrupt: After SIGINT or SIGTERM. The current step is finished and a checkpoint is saved first.
        """
        self.progress = progress
        with explain_lost_process(self._describe_position):
            return self._run()

    def _run(self) -> dict[str, float]:
        try:
            if self.main:
                self.folder.open(self.document, fresh=self._fresh)
            self.accelerator.wait_for_everyone()
            self._fresh, resumed = False, bool(self.folder.checkpoints())
            size = self.restore(self.folder.load()) if resumed else 0
            if not resumed and self._start is not None:
                self.restore(self._start.load(), other=True)
            if self.main:
                self.folder.event("resume" if resumed else "start", self.step)
                log.info("%s: %s at step %d", self.folder.path, "resume" if resumed else "start", self.step)
                self.log = RunLog(self.folder.path, size, self.step)
                self.folder.record(*self.log.boards())
            if self.settings.trackers:
                self.accelerator.init_trackers("hypersphere", _flatten_for_trackers(self.document))
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
        with catch_signals() as stop:
            for batches in self._batches():
                with guard():
                    self._train(batches)
                guard = contextlib.nullcontext
                if self.step % settings.evaluate_every == 0 or self.step == settings.steps:
                    self._evaluate()
                regular = self.step % settings.checkpoint_every == 0 or self.step == settings.steps or self.stopped
                if regular:
                    self._checkpoint()
                if is_any(self.accelerator, stop.is_set()):
                    if not regular:
                        self._checkpoint(extra=True)
                    if self.main:
                        self.folder.event("interrupt", self.step)
                    raise KeyboardInterrupt(f"stopped at step {self.step}; {self.folder.path} goes on from there")

    def _batches(self) -> Iterator[list[tuple[Tensor, ...]]]:
        """Yield the batches of each step, ``accumulate`` at a time."""
        batches: list[tuple[Tensor, ...]] = []
        while self.step < self.settings.steps and not self.stopped:
            for batch in self.task.loader:
                batches.append(move_to_device(batch, self.accelerator.device, self.settings.channels_last))
                if len(batches) == self.settings.accumulate:
                    yield batches
                    batches = []
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
            values = torch.stack([loss, *parts.values()]).detach()
            values = values.to(torch.promote_types(values.dtype, torch.float32)) / len(batches)
            total = values if total is None else total + values
        assert total is not None
        if self.settings.clip is not None:
            self.accelerator.unscale_gradients()
            clip_gradients(self.task.parameters(), self.settings.clip)
        # The wrappers of accelerate are needed only for scaled gradients. They look for installed packages in every step, which
        # is slow.
        scaled = self.accelerator.scaler is not None
        for optimizer in self.prepared if scaled else self.optimizers:
            optimizer.step()
        if not (scaled and any(optimizer.step_was_skipped for optimizer in self.prepared)):  # float16 skips on overflow
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
        is_logged = self.step % settings.log_every == 0 or self.step in (1, settings.steps)
        is_saved = self.step % settings.checkpoint_every == 0 or self.step == settings.steps
        # On a GPU, reading a loss waits for the device, so only losses that are logged or saved are checked.
        if not (is_logged or is_saved or total.device.type == "cpu"):
            return
        values = self.accelerator.reduce(total, "mean").tolist()
        if not math.isfinite(values[0]):
            terms = ", ".join(f"{name} {value:g}" for name, value in zip(names, values[1:], strict=True))
            self.raise_non_finite(f"the loss became {values[0]} at step {self.step} ({terms})")
        if is_logged:
            parts = dict(zip(names, values[1:], strict=True)) if len(names) > 1 else {}
            self._write({"step": self.step, "loss": values[0], **parts, **get_learning_rate(self.optimizers)})

    @torch.no_grad()
    def _evaluate(self) -> None:
        """Evaluate on all processes, without changing the random states of training."""
        self.wrapped.eval()
        broadcast_buffers(self.task)
        with (
            self.ema.use_averaged_weights(self.task.model) if self.ema is not None else contextlib.nullcontext(),
            torch.random.fork_rng(),
        ):
            row = {"step": self.step, **self.task.evaluate(), **self.task.measures()}
        if not math.isfinite(row.get("feature_norm", 0.0)):
            self.raise_non_finite(f"the features are not finite at step {self.step}")
        name = self.settings.monitor.lstrip("-")
        if name not in row:
            raise ValueError(f"monitor must be one of {', '.join(k for k in row if k != 'step')}, got {name!r}")
        score = -row[name] if self.settings.monitor.startswith("-") else row[name]
        score = score if math.isfinite(score) else -math.inf  # an undefined score is never the best
        self._write(row)
        self.measured = row
        improved = is_any(self.accelerator, self.main and (self.best is None or score > self.best))
        self.best = score if improved else self.best
        self.waited = 0 if improved else self.waited + 1
        self.stopped = self.settings.patience is not None and self.waited >= self.settings.patience
        self.schedule.observe(score)
        for callback in self.callbacks:
            callback.on_evaluate(self, row)
        if improved:
            self._checkpoint(best=True)

    def _checkpoint(self, best: bool = False, extra: bool = False) -> None:
        state = {**self.get_state(), "extra": extra}
        if not is_finite({key: state[key] for key in ("task", "optimizers", "ema")}):
            self.raise_non_finite(f"weights or the optimizer's state are not finite at step {self.step}")
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
            self._load_weights(load_tree(self.folder.best))
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

    def get_state(self) -> dict[str, Any]:
        """Return the content of a checkpoint: weights, optimizers, averages, positions, random states of all processes."""
        scaler = self.accelerator.scaler
        learned = {
            "task": self.task.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "ema": None if self.ema is None else self.ema.state_dict(),
        }
        return {
            **{name: getattr(self, name) for name in POSITION},
            **gather_states(self.task, learned),
            "schedule": self.schedule.state_dict(),
            "scaler": None if scaler is None else scaler.state_dict(),
            "callbacks": [callback.state_dict() for callback in self.callbacks],
            "loader": self.task.loader.state_dict(),
            "conditions": self.conditions,
            "log": self.log.size if self.log is not None else 0,
            "random": require("accelerate.utils").gather_object([get_random_state()]),
        }

    def restore(self, state: dict[str, Any], *, other: bool = False) -> int:
        """Restore a saved state, and return the length of the log when it was saved.

        The state may have been saved with another number of processes. The random numbers of each process then restart from
        the seed.

        Args:
            state: The content of a checkpoint.
            other: Whether the checkpoint belongs to another run, whose settings and data may differ.

        Raises:
            ValueError: If settings, data or the number of callbacks differ from those of the checkpoint.
        """
        if not other:
            self.check_conditions(state["conditions"])
        if len(self.callbacks) != len(state["callbacks"]):
            raise ValueError(
                f"callbacks must be those of the stored run, which has {len(state['callbacks'])}, got {len(self.callbacks)}"
            )
        self.task.load_state_dict(state["task"])
        for optimizer, stored in zip(self.optimizers, state["optimizers"], strict=True):
            load_optimizer(optimizer, stored)
        self.schedule.load_state_dict(state["schedule"])
        if self.accelerator.scaler is not None and state["scaler"] is not None:
            self.accelerator.scaler.load_state_dict(state["scaler"])
        if self.ema is not None:
            load_average(self.ema, state["ema"])
        for callback, stored in zip(self.callbacks, state["callbacks"], strict=True):
            callback.load_state_dict(stored)
        self.task.loader.load_state_dict(state["loader"])
        for name in POSITION:
            setattr(self, name, state[name])
        rank, random = self.accelerator.process_index, state["random"]
        if len(random) == self.accelerator.num_processes:
            set_random_state(random[rank])
        else:  # a seed of its own for every run, step and process; 1,000,003 is a prime above usual numbers of steps
            seed_generators((self.settings.seed * 1_000_003 + self.step) * 4096 + rank)
        return int(state["log"])

    def check_conditions(self, stored: Mapping[str, Any]) -> None:
        """Refuse a checkpoint with other settings or other data. Warn if the number of threads differs.

        Args:
            stored: The value of :attr:`conditions` in the checkpoint.

        Raises:
            ValueError: If settings or data differ. The message names the differences.
        """
        changed = describe_differences(stored["settings"], self.conditions["settings"])
        if changed:
            raise ValueError(
                f"{self.folder.path} holds a checkpoint of other settings ({changed}): set them back in config.json, or "
                "start a new run from it with --resume FOLDER --output NEW KEY=VALUE"
            )
        there, here = stored["data"], self.conditions["data"]
        if None not in (there, here) and there != here:
            raise ValueError(
                f"{self.folder.path} holds a checkpoint of other training data (digest {there[:12]} there, "
                f"{here[:12]} here): bring the data back, or start a new run"
            )
        if stored["threads"] != self.conditions["threads"]:
            warnings.warn(
                f"the run was made with {stored['threads']} threads and goes on with {self.conditions['threads']}: its numbers will "
                "differ in the last bits from those of an uninterrupted run",
                stacklevel=2,
            )

    def raise_non_finite(self, reason: str) -> NoReturn:
        """Record in the run folder that numbers are not finite, and raise :class:`NonFiniteLossError` with the reason."""
        last = self.folder.last
        if self.main and self.folder.path.is_dir():
            self.folder.event("not finite", self.step)
        good = (
            f"the last good checkpoint is {last} (of step {load_tree(last)['step']})"
            if last.exists()
            else "none was saved"
        )
        raise NonFiniteLossError(f"{reason}; {good}. Try a smaller optimizer.lr, clip=1, or schedule.warmup")

    def _load_weights(self, state: dict[str, Any]) -> None:
        """Load the weights of a checkpoint, averaged ones if there is an average, and its metrics."""
        self.task.load_state_dict(state["task"])
        if self.ema is not None:
            load_average(self.ema, state["ema"])
            self.ema.load_into(self.task.model)
        self.measured = dict(state["measured"])

    def _describe_position(self) -> str:
        """Return the step of the run, and the step from which it would resume."""
        last = self.folder.last
        if not last.exists():
            return f"at step {self.step}, before anything was saved; {self.folder.path} starts anew"
        saved = load_tree(last)["step"]
        return f"at step {self.step}; {self.folder.path} goes on from step {saved} on any number of processes"

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
    values = {field.name: _encode(getattr(settings, field.name)) for field in dataclasses.fields(settings)}
    names = {"class": type(task).__qualname__, "model": type(task.model).__qualname__}
    return {"settings": values, "task": {**names, **{str(k): _encode(v) for k, v in task.summary().items()}}}


def compute_data_digest(task: Any) -> str | None:
    """Return the SHA-256 of the training samples and the teacher of a task, or None for a stream.

    Samples that are read from files count with their labels only.
    """
    samples = getattr(task, "train_samples", None)
    if samples is None or is_stream(samples):
        return None
    digest = hashlib.sha256(repr([len(samples), list(map(str, samples.classes))]).encode())
    digest.update(getattr(task, "taught_by", "").encode())
    for tensor in (samples.labels, getattr(samples, "data", None)):
        if isinstance(tensor, Tensor):
            plain = tensor.detach().cpu().contiguous().flatten()
            digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
            digest.update(plain.view(torch.uint8).numpy().data if plain.numel() else b"")
    return digest.hexdigest()


def _flatten_for_trackers(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings on one level, with lists as text, because trackers accept only numbers and text."""
    return {
        key: value if isinstance(value, bool | int | float | str) else str(value)
        for key, value in flatten(document).items()
    }


def _encode(value: Any) -> Any:
    """Return a value as JSON, or the name of its type if it has no such form."""
    try:
        return encode(value, defaults=isinstance(value, Call))
    except ValueError:
        return getattr(value, "__qualname__", type(value).__qualname__)
