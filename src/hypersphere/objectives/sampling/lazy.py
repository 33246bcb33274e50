"""Base of the optimizers that update only the rows with a gradient: sparse gradients and deferred weight decay."""

import copy
import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.optim import Optimizer

from ...collectives import get_first_row, get_local, is_sharded
from ..parallel.storage import wrap_shard


class RowGradient(NamedTuple):
    """The gradient of some rows. ``positions`` are their indices among the rows of this process, or None for all rows."""

    positions: Int[Tensor, "m"] | None
    gradient: Float[Tensor, "..."]


def read_row_gradient(parameter: Tensor) -> RowGradient:
    """Return the rows of a parameter's sparse or dense gradient."""
    gradient = parameter.grad
    assert gradient is not None
    if gradient.layout != torch.sparse_coo:
        return RowGradient(None, get_local(gradient))
    gradient = gradient.coalesce()
    return RowGradient(gradient.indices()[0] - get_first_row(parameter), gradient.values())


class RowOptimizer(Optimizer):
    """An optimizer that updates only the rows with a gradient, and applies their missed weight decay at the next update.

    A row without a gradient keeps its weight and its momenta. When a row is updated after k steps, weight decay is applied for
    all k: the row is multiplied by Π (1 − lr·decay) over these steps. A dense gradient updates all rows. A row that is updated in
    every step gets the updates of torch's AdamW (:class:`RowAdam`) or SGD (:class:`RowSGD`).

    Each group contains ``shrunk``, the sum of log(1 − lr·decay) over all steps. For each parameter, ``state`` contains the
    momenta and two numbers per row: ``times`` counts its updates, and ``shrinkage`` is ``shrunk`` at its last update.

    >>> class RowSigns(RowOptimizer):
    ...     def update(self, weight, gradient, momenta, group, times):
    ...         weight.sub_(gradient.sign(), alpha=group["lr"])
    >>> w = torch.nn.Parameter(torch.ones(2, 2))
    >>> w.grad = torch.sparse_coo_tensor([[1]], [[3.0, -0.1]], (2, 2), check_invariants=True)
    >>> RowSigns([w], {"lr": 0.5, "weight_decay": 0.0}).step()
    >>> w.tolist()
    [[1.0, 1.0], [0.5, 1.5]]
    """

    momenta: tuple[str, ...] = ()
    per_row: tuple[str, ...] = ("times", "shrinkage")

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Perform one step and return the loss of ``closure``, or None without a closure."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            decay = float(group["lr"]) * float(group["weight_decay"])
            if decay >= 1:
                raise ValueError(f"lr·weight_decay must be below 1, got {decay:g}")
            shrunk_before = group.get("shrunk", 0.0)
            group["shrunk"] = shrunk_before + math.log1p(-decay)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update_parameter(parameter, group, shrunk_before)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a copy of a state. Numbers per row keep their dtype, which torch would change to that of the weight."""
        super().load_state_dict(copy.deepcopy(state_dict))
        indices = [index for group in state_dict["param_groups"] for index in group["params"]]
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        for index, parameter in zip(indices, parameters, strict=True):
            for name in self.per_row:
                value = state_dict["state"].get(index, {}).get(name)
                if value is not None:
                    self.state[parameter][name] = value.to(get_local(parameter).device).clone()

    def update(
        self, weight: Tensor, gradient: Tensor, momenta: list[Tensor], group: dict[str, Any], times: Tensor
    ) -> None:
        """Update the rows ``weight`` and their ``momenta`` in place. ``times`` is a column with the update count of each row."""
        raise TypeError(f"{type(self).__name__} must define update(…)")

    def _update_parameter(self, parameter: Tensor, group: dict[str, Any], shrunk_before: float) -> None:
        """Apply the missed weight decay to the rows with a gradient, and then update them."""
        state = self.state[parameter]
        if not state:
            for name in self.momenta:
                state[name] = torch.zeros_like(parameter)
            state["times"] = _create_row_state(parameter, 0, torch.int64)
            state["shrinkage"] = _create_row_state(parameter, shrunk_before, torch.float64)
        positions, gradient = read_row_gradient(parameter)
        weight, momenta = get_local(parameter), [get_local(state[name]) for name in self.momenta]
        times, shrinkage = get_local(state["times"]), get_local(state["shrinkage"])
        rows: Any = ... if positions is None else positions
        missed, row_momenta = shrunk_before - shrinkage[rows], [momentum[rows] for momentum in momenta]
        row_weights = weight[rows]
        if row_weights.numel() and bool((missed != 0).any()):
            row_weights.mul_(_reshape_to_column(missed.exp(), row_weights))
        times[rows] += 1
        self.update(
            row_weights,
            gradient.to(row_weights.dtype),
            row_momenta,
            group,
            _reshape_to_column(times[rows], row_weights, torch.float64),
        )
        if positions is not None:
            weight[positions] = row_weights
            for whole, momentum in zip(momenta, row_momenta, strict=True):
                whole[positions] = momentum
        shrinkage[rows] = group["shrunk"]


def _create_row_state(parameter: Tensor, value: float, dtype: torch.dtype) -> Tensor:
    """Create a tensor with one number per row, sharded like the parameter; a scalar for a scalar parameter."""
    if not is_sharded(parameter):
        return torch.full(parameter.shape[:1], value, dtype=dtype, device=parameter.device)
    local = torch.full((len(get_local(parameter)),), value, dtype=dtype, device=get_local(parameter).device)
    return wrap_shard(local, parameter.shape[:1], parameter.device_mesh)


def _reshape_to_column(numbers: Tensor, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Reshape one number per row to a column that broadcasts over the rows."""
    return numbers.to(dtype or like.dtype).reshape([-1, *[1] * (like.ndim - 1)] if like.ndim else [])
