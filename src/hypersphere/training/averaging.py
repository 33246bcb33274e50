"""Averages of weights: a moving average during training, and the mean of the last checkpoints."""

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..files import load_tree


class MovingAverage:
    """An exponential moving average of weights: ``decay``·average + (1 − ``decay``)·weights after every step.

    The decay of step t is at most (1 + t)/(10 + t), so that the average follows the weights quickly at the start.
    Parameters and floating-point buffers are averaged, integers are copied.

    >>> net = torch.nn.Linear(1, 1, bias=False)
    >>> average = MovingAverage(net, 0.9)
    >>> _ = net.weight.data.fill_(1.0), average.shadow["weight"].fill_(0.0)
    >>> average.update(net); round(average.shadow["weight"].item(), 3)
    0.818
    """

    def __init__(self, model: nn.Module, decay: float):
        self.decay, self.steps = decay, 0
        self.shadow = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Update the average after a training step."""
        self.steps += 1
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                self.shadow[name].lerp_(tensor.to(self.shadow[name].dtype), 1 - decay)
            else:
                self.shadow[name].copy_(tensor)

    def load_into(self, model: nn.Module) -> None:
        """Load the averaged weights into the model; normalize the weights of a network on the sphere."""
        model.load_state_dict(self.shadow)
        renormalize_weights(model)

    @contextmanager
    def use_averaged_weights(self, model: nn.Module) -> Iterator[None]:
        """Load the averaged weights for the ``with`` block; restore the original weights afterwards."""
        original = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        self.load_into(model)
        try:
            yield
        finally:
            model.load_state_dict(original)

    def state_dict(self) -> dict[str, object]:
        """Return the average and the number of steps in it."""
        return {"shadow": self.shadow, "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore a saved state."""
        shadow, steps = state["shadow"], state["steps"]
        assert isinstance(shadow, dict)
        assert isinstance(steps, int)
        for name, tensor in shadow.items():
            self.shadow[name].copy_(tensor)
        self.steps = steps


def load_checkpoint_average(task: nn.Module, paths: Sequence[pathlib.Path]) -> None:
    """Load the mean of several checkpoints into a task. ``paths`` starts with the newest checkpoint."""
    task.load_state_dict(average_states([load_tree(path)["task"] for path in reversed(paths)]))
    renormalize_weights(task.model)  # type: ignore[arg-type]


def renormalize_weights(model: nn.Module) -> None:
    """Normalize the weights of a network on the sphere, such as nGPT. Other networks are not changed.

    Steps and averages change the length of weights. Networks on the sphere have a method ``renormalize_``.
    """
    renormalize = getattr(model, "renormalize_", None)
    if callable(renormalize):
        renormalize()


def average_states(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the mean of several state_dicts. Integers and values that are not tensors are taken from the last one.

    >>> average_states([{"w": torch.tensor([0.0])}, {"w": torch.tensor([1.0])}])
    {'w': tensor([0.5000])}
    """
    if not states:
        raise ValueError("states must contain at least one state_dict, got none")
    names = states[0].keys()
    if any(state.keys() != names for state in states):
        raise ValueError("states must contain the same tensors, got states of different networks")
    result: dict[str, Any] = {}
    for name in names:
        last = states[-1][name]
        if not isinstance(last, Tensor):
            result[name] = last
            continue
        if last.is_floating_point():
            total = sum(state[name].double() for state in states)
            assert isinstance(total, Tensor)
            last = (total / len(states)).to(last.dtype)
        result[name] = last.clone()
    return result
