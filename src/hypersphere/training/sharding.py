"""Heads that are sharded among the processes of a run, and their checkpoints."""

from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from ..energy import Regularizer
from ..objectives import MarginSoftmax
from ..objectives.parallel import convert_stored, fit_state, gather_tree, ignore_shards, sharded_parameters
from .averaging import MovingAverage


def shard_heads(task: nn.Module, device: torch.device, processes: int) -> None:
    """Shard every head that was created with ``parallel=True``, if there are several processes.

    Raises:
        ValueError: If a head is sharded, has sampled classes and is regularized at the same time.
    """
    heads = [m for m in task.modules() if isinstance(m, MarginSoftmax) and m.parallel and m.shards is None]
    if not heads or processes == 1:
        return
    energies = [m for m in task.modules() if isinstance(m, Regularizer) and m.classifier is not None and m.output > 0]
    if energies and any(head.sample is not None for head in heads):
        raise ValueError(
            f"sample must be none for a divided head whose classes are regularized ({type(energies[0]).__name__}): the "
            "gradient of the regularizer has all rows, that of sampled classes only a part; leave out sample= or "
            "parallel=, or set the regularizer's output to 0"
        )
    for head in heads:
        head.to(device).shard()
    ignore_shards(task)


def unshard_heads(task: nn.Module) -> None:
    """Gather sharded heads on every process, for the results of a run. All processes must call this function."""
    for module in task.modules():
        if isinstance(module, MarginSoftmax):
            module.unshard()


def whole_states(task: nn.Module, states: dict[str, Any]) -> dict[str, Any]:
    """Return the states of a checkpoint with shards gathered, so that any number of processes can load them."""
    return {name: gather_tree(state) for name, state in states.items()} if sharded_parameters(task) else states


def load_optimizer(optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Load the state of an optimizer that was saved by any number of processes."""
    optimizer.load_state_dict(state)
    fit_state(optimizer)


def load_average(average: MovingAverage, state: dict[str, Any]) -> None:
    """Load an average that was saved by any number of processes."""
    shadow = {name: convert_stored(tensor, average.shadow[name]) for name, tensor in state["shadow"].items()}
    average.load_state_dict({**state, "shadow": shadow})
