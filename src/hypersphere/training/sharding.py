"""Heads of a task that are divided among the processes of its run, and their checkpoints."""

from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from ..energy import Regularizer
from ..objectives import MarginSoftmax
from ..objectives.parallel import convert_stored, fit_state, gather_tree, ignore_shards, sharded_parameters
from .averaging import MovingAverage


def shard_heads(task: nn.Module, device: torch.device, processes: int) -> None:
    """Divide every head that was made with ``parallel=True``; on one process there is nothing to divide.

    Raises:
        ValueError: If a head is divided, drawn from and regularized at the same time.
    """
    heads = [m for m in task.modules() if isinstance(m, MarginSoftmax) and m.parallel and m.shards is None]
    if not heads or processes == 1:
        return
    energies = [m for m in task.modules() if isinstance(m, Regularizer) and m.classifier is not None and m.output > 0]
    if energies and any(head.sample is not None for head in heads):
        raise ValueError(
            f"sample must be none for a divided head whose classes are regularized ({type(energies[0]).__name__}): the "
            "gradient of the regularizer has all rows, that of drawn classes a part; leave out sample=, parallel=, or set "
            "the regulariser's output to 0"
        )
    for head in heads:
        head.to(device).shard()
    ignore_shards(task)


def unshard_heads(task: nn.Module) -> None:
    """Make divided heads whole on every process, for what a finished run leaves; every process must call it."""
    for module in task.modules():
        if isinstance(module, MarginSoftmax):
            module.unshard()


def whole_states(task: nn.Module, states: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint's states with what is in shards gathered, so that any number of processes reads them."""
    return {name: gather_tree(state) for name, state in states.items()} if sharded_parameters(task) else states


def load_optimizer(optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Go on from a state that any number of processes has left."""
    optimizer.load_state_dict(state)
    fit_state(optimizer)


def load_average(average: MovingAverage, state: dict[str, Any]) -> None:
    """Go on from an average that any number of processes has left."""
    shadow = {name: convert_stored(tensor, average.shadow[name]) for name, tensor in state["shadow"].items()}
    average.load_state_dict({**state, "shadow": shadow})
