"""Base class of optimizers that treat linear layers, convolutions and fused projections as matrices."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import Optimizer

from ..geometry import accumulation_dtype, disable_autocast


class MatrixOptimizer(Optimizer, ABC):
    """An optimizer with momentum that updates every weight as a matrix of shape ``(neurons, dim)``.

    A filter of a convolution is flattened to one neuron. :func:`group_matrices` sets two options of a parameter group:
    ``parts=k`` divides the neurons into k separate matrices, such as the groups of a convolution or the fused query, key
    and value of an attention. ``transposed=True`` means that the columns are the neurons.
    """

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]):
        super().__init__(params, {**defaults, "parts": 1, "transposed": False})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a parameter group after checking its parameters and options."""
        group = {**self.defaults, **param_group}
        for name in ("lr", "weight_decay"):
            if name in group and not group[name] >= 0:
                raise ValueError(f"{name} must be a number ≥ 0, got {group[name]!r}")
        if not 0 <= group["momentum"] < 1:
            raise ValueError(f"momentum must be in [0, 1), got {group['momentum']!r}")
        super().add_param_group(param_group)
        for p in self.param_groups[-1]["params"]:
            neurons = p.shape[1 if group["transposed"] else 0] if p.ndim >= 2 else 0
            if p.ndim < 2 or neurons % group["parts"]:
                raise ValueError(
                    f"params must be weights of two or more dimensions whose neurons divide into parts={group['parts']}, "
                    f"got shape {tuple(p.shape)}; group_matrices(model) puts the other parameters into a group for AdamW"
                )

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        loss = evaluate_closure(closure)
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    with disable_autocast(p.device.type):
                        self._update(p, p.grad, group)
        return loss

    @abstractmethod
    def _update(self, p: Tensor, gradient: Tensor, group: dict[str, Any]) -> None: ...

    def _momentum(self, p: Tensor, gradient: Tensor, group: dict[str, Any]) -> Tensor:
        """Return the exponential moving average of the gradients, with ``nesterov`` one step ahead."""
        state, momentum = self.state[p], group["momentum"]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(gradient, memory_format=torch.preserve_format)
        buffer: Tensor = state["momentum_buffer"].lerp_(gradient, 1 - momentum)
        return gradient.lerp(buffer, momentum) if group["nesterov"] else buffer.clone()


def evaluate_closure(closure: Callable[[], Any] | None) -> Any:
    """Return the loss that the closure of an optimizer step computes with gradients; None without a closure."""
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


def as_matrices(weight: Tensor, group: dict[str, Any]) -> Float[Tensor, "parts neurons numbers"]:
    """Return a weight as ``parts`` matrices, in float32 or better."""
    wide = weight.to(accumulation_dtype(weight))
    rows = wide.mT if group["transposed"] else wide.flatten(1)
    return rows.unflatten(0, (group["parts"], -1))


def as_weight(matrices: Tensor, like: Tensor, group: dict[str, Any]) -> Tensor:
    """Undo :func:`as_matrices`."""
    rows = matrices.flatten(0, 1)
    return (rows.mT if group["transposed"] else rows.reshape(like.shape)).to(like.dtype)
