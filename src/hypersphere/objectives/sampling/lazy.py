"""What optimizers of rows share: which rows a gradient has, and what a row has missed since it was last touched."""

import copy
import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.optim import Optimizer

from ...collectives import get_first_row, get_local, is_sharded
from ..parallel.storage import wrap_shard


class Touched(NamedTuple):
    """The rows that have a gradient: their places in what this process holds, or None for all of them."""

    places: Int[Tensor, "m"] | None
    gradient: Float[Tensor, "..."]


def read_row_gradient(parameter: Tensor) -> Touched:
    """Return the rows of a parameter's gradient, sparse or dense."""
    gradient = parameter.grad
    assert gradient is not None
    if gradient.layout != torch.sparse_coo:
        return Touched(None, get_local(gradient))
    gradient = gradient.coalesce()
    return Touched(gradient.indices()[0] - get_first_row(parameter), gradient.values())


class RowOptimizer(Optimizer):
    """An optimizer that touches the rows that have a gradient, and lets each catch up with the weight decay it has missed.

    A row that is not touched keeps its weight and its momenta: for them time stands still until it is touched again, so
    that a gradient moves a row as far in the end as it would in a row that is always touched. When a row is touched
    after k steps, weight decay acts for all k: by Π (1 − lr·decay) over the rates of those steps. A parameter with a
    dense gradient is one whose rows are all touched, and a row that is touched in each step gets what torch's optimizer
    of the same name does.

    ``state`` holds for each parameter the momenta, and ``times``, how often each row was touched. Each group holds
    ``shrunk``, the sum of log(1 − lr·decay) so far, for which ``shrinkage`` keeps the value of each row.

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
        """Perform one optimization step. ``closure``, if given, computes the loss again and returns it."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            rate = float(group["lr"]) * float(group["weight_decay"])
            if rate >= 1:
                raise ValueError(f"lr·weight_decay must be below 1, got {rate:g}")
            before = group.get("shrunk", 0.0)
            group["shrunk"] = before + math.log1p(-rate)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._step(parameter, group, before)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a copy of a saved state. Step counts keep their precision regardless of the dtype of the weights."""
        super().load_state_dict(copy.deepcopy(state_dict))
        saved = [number for group in state_dict["param_groups"] for number in group["params"]]
        own = [parameter for group in self.param_groups for parameter in group["params"]]
        for number, parameter in zip(saved, own, strict=True):
            for name in self.per_row:
                value = state_dict["state"].get(number, {}).get(name)
                if value is not None:
                    self.state[parameter][name] = value.to(get_local(parameter).device).clone()

    def update(
        self, weight: Tensor, gradient: Tensor, momenta: list[Tensor], group: dict[str, Any], times: Tensor
    ) -> None:
        """Update the weight and its momenta in place. ``times`` is the step number of each row, as a column."""
        raise TypeError(f"{type(self).__name__} must define update(…)")

    def _step(self, parameter: Tensor, group: dict[str, Any], before: float) -> None:
        state = self.state[parameter]
        if not state:
            for name in self.momenta:
                state[name] = torch.zeros_like(parameter)
            state["times"] = _per_row(parameter, 0, torch.int64)
            state["shrinkage"] = _per_row(parameter, before, torch.float64)
        places, gradient = read_row_gradient(parameter)
        weight, momenta = get_local(parameter), [get_local(state[name]) for name in self.momenta]
        times, shrinkage = get_local(state["times"]), get_local(state["shrinkage"])
        rows: Any = ... if places is None else places
        owed, own = before - shrinkage[rows], [momentum[rows] for momentum in momenta]
        part = weight[rows]
        if part.numel() and bool((owed != 0).any()):
            part.mul_(_column(owed.exp(), part))
        times[rows] += 1
        self.update(part, gradient.to(part.dtype), own, group, _column(times[rows], part, torch.float64))
        if places is not None:
            weight[places] = part
            for whole, momentum in zip(momenta, own, strict=True):
                whole[places] = momentum
        shrinkage[rows] = group["shrunk"]


def _per_row(parameter: Tensor, value: float, dtype: torch.dtype) -> Tensor:
    """Return a tensor with one number per row, in shards if the parameter is; a single number for a parameter without rows."""
    if not is_sharded(parameter):
        return torch.full(parameter.shape[:1], value, dtype=dtype, device=parameter.device)
    local = torch.full((len(get_local(parameter)),), value, dtype=dtype, device=get_local(parameter).device)
    return wrap_shard(local, parameter.shape[:1], parameter.device_mesh)


def _column(numbers: Tensor, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Reshape one number per row so that it multiplies the rows."""
    return numbers.to(dtype or like.dtype).reshape([-1, *[1] * (like.ndim - 1)] if like.ndim else [])
