"""What a checkpoint holds: everything that a run needs to go on as if it had never stopped."""

import hashlib
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .._extras import require
from ..files import load_tree
from .datasets import is_stream
from .processes import random_state, set_random_state
from .run_folder import describe_differences, normalize_document
from .sharding import load_average, load_optimizer, whole_states

if TYPE_CHECKING:
    from .trainer import Trainer


COUNTS = ("step", "updates", "best", "waited", "stopped", "measured", "extra")


def state_of(trainer: "Trainer") -> dict[str, Any]:
    """Everything that a trainer must keep: weights, optimizers, averages, positions and random numbers of all processes."""
    scaler = trainer.accelerator.scaler
    learned = {
        "task": trainer.task.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in trainer.optimizers],
        "ema": None if trainer.ema is None else trainer.ema.state_dict(),
    }
    return {
        **{name: getattr(trainer, name) for name in COUNTS},
        **whole_states(trainer.task, learned),
        "schedule": trainer.schedule.state_dict(),
        "scaler": None if scaler is None else scaler.state_dict(),
        "callbacks": [callback.state_dict() for callback in trainer.callbacks],
        "loader": trainer.task.loader.state_dict(),
        "bound": trainer.bound,
        "log": trainer.log.size if trainer.log is not None else 0,
        "random": require("accelerate.utils").gather_object([random_state()]),
    }


def restore(trainer: "Trainer", state: dict[str, Any], *, other: bool = False) -> int:
    """Put a trainer into a kept state; returns the length of the log at that moment.

    A state of another number of processes is taken as well: what each process draws for itself then starts anew, the same
    way every time. One of other settings or other data is refused, unless it is asked for as that of an ``other`` run.
    """
    if not other:
        check_bound(trainer, state["bound"])
    if len(trainer.callbacks) != len(state["callbacks"]):
        raise ValueError(
            f"callbacks must be those of the stored run, which has {len(state['callbacks'])}, got {len(trainer.callbacks)}"
        )
    trainer.task.load_state_dict(state["task"])
    for optimizer, stored in zip(trainer.optimizers, state["optimizers"], strict=True):
        load_optimizer(optimizer, stored)
    trainer.schedule.load_state_dict(state["schedule"])
    if trainer.accelerator.scaler is not None and state["scaler"] is not None:
        trainer.accelerator.scaler.load_state_dict(state["scaler"])
    if trainer.ema is not None:
        load_average(trainer.ema, state["ema"])
    for callback, stored in zip(trainer.callbacks, state["callbacks"], strict=True):
        callback.load_state_dict(stored)
    trainer.task.loader.load_state_dict(state["loader"])
    for name in COUNTS:
        setattr(trainer, name, state[name])
    rank, random = trainer.accelerator.process_index, state["random"]
    if len(random) == trainer.accelerator.num_processes:
        set_random_state(random[rank])
    else:
        torch.manual_seed((trainer.settings.seed * 1_000_003 + trainer.step) * 4096 + rank)
    return int(state["log"])


def load_weights_of(trainer: "Trainer", state: dict[str, Any]) -> dict[str, Any]:
    """Give the model the weights of a kept state, averaged ones if there is an average; returns its last measures."""
    trainer.task.load_state_dict(state["task"])
    if trainer.ema is not None:
        load_average(trainer.ema, state["ema"])
        trainer.ema.load_into(trainer.task.model)
    return dict(state["measured"])


def position(trainer: "Trainer") -> str:
    """At which step a run is, and from which one it would go on."""
    last = trainer.folder.last
    if not last.exists():
        return f"at step {trainer.step}, before anything was saved; {trainer.folder.path} starts anew"
    kept = load_tree(last)["step"]
    return f"at step {trainer.step}; {trainer.folder.path} goes on from step {kept} on any number of processes"


def bound_to(trainer: "Trainer") -> dict[str, Any]:
    """What every checkpoint of a run says about it: its settings, a digest of its training samples, its threads."""
    settings = normalize_document(trainer.document)
    return {"settings": settings, "data": data_digest(trainer.task), "threads": torch.get_num_threads()}


def check_bound(trainer: "Trainer", stored: Mapping[str, Any]) -> None:
    """Refuse a checkpoint of other settings or other data, each named; another number of threads is a warning."""
    here = trainer.bound
    changed = describe_differences(stored["settings"], here["settings"])
    if changed:
        raise ValueError(
            f"{trainer.folder.path} holds a checkpoint of other settings ({changed}): set them back in config.json, or "
            "start a new run from it with --resume FOLDER --output NEW KEY=VALUE"
        )
    if None not in (stored["data"], here["data"]) and stored["data"] != here["data"]:
        raise ValueError(
            f"{trainer.folder.path} holds a checkpoint of other training data (digest {stored['data'][:12]} there, "
            f"{here['data'][:12]} here): bring the data back, or start a new run"
        )
    if stored["threads"] != here["threads"]:
        warnings.warn(
            f"the run was made with {stored['threads']} threads and goes on with {here['threads']}: its numbers will differ "
            "in the last bits from those of an uninterrupted run",
            stacklevel=2,
        )


def data_digest(task: Any) -> str | None:
    """SHA-256 of the training samples of a task and of its teacher; of files their labels, of a stream nothing (None)."""
    samples = getattr(task, "train_samples", None)
    if samples is None or is_stream(samples):
        return None
    whole = hashlib.sha256(repr([len(samples), list(map(str, samples.classes))]).encode())
    whole.update(getattr(task, "taught_by", "").encode())
    for tensor in (samples.labels, getattr(samples, "data", None)):
        if isinstance(tensor, Tensor):
            plain = tensor.detach().cpu().contiguous().flatten()
            whole.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
            whole.update(plain.view(torch.uint8).numpy().data if plain.numel() else b"")
    return whole.hexdigest()
