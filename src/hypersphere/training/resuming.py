"""What a checkpoint holds: everything that a run needs to go on as if it had never stopped."""

from typing import TYPE_CHECKING, Any

import torch

from .._extras import require
from ..files import load_tree
from .binding import check_bound
from .processes import random_state, set_random_state
from .sharding import load_average, load_optimizer, whole_states

if TYPE_CHECKING:
    from .trainer import Trainer

COUNTS = ("step", "updates", "best", "waited", "stopped", "measured")


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


def position(trainer: "Trainer") -> str:
    """At which step a run is, and from which one it would go on."""
    last = trainer.folder.last
    if not last.exists():
        return f"at step {trainer.step}, before anything was saved; {trainer.folder.path} starts anew"
    kept = load_tree(last)["step"]
    return f"at step {trainer.step}; {trainer.folder.path} goes on from step {kept} on any number of processes"
