"""The content of a checkpoint: everything that a run needs to resume with the same results."""

import hashlib
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .._extras import require
from ..files import load_tree
from .datasets import is_stream
from .processes import load_average, load_optimizer, random_state, seed_generators, set_random_state, whole_states
from .run_folder import describe_differences, normalize_document

if TYPE_CHECKING:
    from .trainer import Trainer


COUNTS = ("step", "updates", "best", "waited", "stopped", "measured", "extra")


def state_of(trainer: "Trainer") -> dict[str, Any]:
    """Return the state of a trainer: weights, optimizers, averages, positions and random states of all processes."""
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
    """Restore a trainer from a saved state; return the length of the log at that moment.

    A state saved with another number of processes is accepted; random numbers per process then restart from the seed.
    A state with other settings or other data is refused, unless it belongs to an ``other`` run.
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
        seed_generators((trainer.settings.seed * 1_000_003 + trainer.step) * 4096 + rank)
    return int(state["log"])


def load_weights_of(trainer: "Trainer", state: dict[str, Any]) -> dict[str, Any]:
    """Load the weights of a saved state, averaged ones if there is an average; return its last metrics."""
    trainer.task.load_state_dict(state["task"])
    if trainer.ema is not None:
        load_average(trainer.ema, state["ema"])
        trainer.ema.load_into(trainer.task.model)
    return dict(state["measured"])


def position(trainer: "Trainer") -> str:
    """Return the step of a run and the step from which it would resume."""
    last = trainer.folder.last
    if not last.exists():
        return f"at step {trainer.step}, before anything was saved; {trainer.folder.path} starts anew"
    kept = load_tree(last)["step"]
    return f"at step {trainer.step}; {trainer.folder.path} goes on from step {kept} on any number of processes"


def bound_to(trainer: "Trainer") -> dict[str, Any]:
    """Return what identifies a run in its checkpoints: settings, a digest of the training samples, the number of threads."""
    settings = normalize_document(trainer.document)
    return {"settings": settings, "data": data_digest(trainer.task), "threads": torch.get_num_threads()}


def check_bound(trainer: "Trainer", stored: Mapping[str, Any]) -> None:
    """Refuse a checkpoint with other settings or other data and name the differences; warn about another number of threads."""
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
    """Return the SHA-256 of a task's training samples and teacher; of files only the labels, and None for a stream."""
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
