"""Averages of several tasks of one tuned model in the Cayley algebra (OrthoMerge)."""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .adapter_files import get_adapters
from .weight_change import WeightChange


def average_tasks(model: nn.Module, tasks: Iterable[str] | None = None, *, into: str = "average") -> nn.Module:
    r"""Add a task ``into`` with the generators (1/T)(Σ‖A_i‖/‖ΣA_i‖)ΣA_i of T tasks to every layer (OrthoMerge).

    The mean of skew-symmetric A_i in different directions is too short, so it is scaled to the mean of their lengths. R
    must be a single Cayley transform (``"oft"``, ``"coft"``).

    Args:
        model: A model with several tasks, see :func:`add_task` and :func:`load_adapters`.
        tasks: The tasks to average; None for all.
        into: The name of the new task. Activate it by :func:`use_task`.

    Returns:
        The model.

    Raises:
        ValueError: If a layer does not have one of the tasks or has ``into`` already, if there are fewer than two tasks,
            or if R is not a single Cayley transform.

    >>> from hypersphere.orthogonal import add_task, finetune
    >>> net = average_tasks(add_task(finetune(torch.nn.Linear(64, 64), block=8), "b"), into="mean")
    >>> list(net.parametrizations.weight[0].tasks)
    ['default', 'b', 'mean']
    """
    adapters = get_adapters(model)
    chosen = list(next(iter(adapters.values())).tasks) if tasks is None else list(tasks)
    if len(chosen) < 2:
        raise ValueError(f"an average needs two or more tasks, got {', '.join(chosen) or 'none'}")
    for name, adapter in adapters.items():
        if adapter.change.get_generators() is None:
            raise ValueError(
                f"layer {name!r} is tuned by {adapter.method.name!r}, whose R is not a single Cayley transform"
            )
        if missing := [task for task in chosen if task not in adapter.tasks]:
            raise ValueError(f"layer {name!r} has no task {missing[0]!r}; its tasks are {', '.join(adapter.tasks)}")
        if into in adapter.tasks or not into.isidentifier():
            raise ValueError(f"into must be a new name of letters, digits and underscores, got {into!r}")
    with torch.no_grad():
        for adapter in adapters.values():
            raws = torch.stack([_get_raw_generators(adapter.tasks[task]) for task in chosen])
            adapter.add_like(into, "identity", None)
            _get_raw_generators(adapter.tasks[into]).copy_(average_generators(raws))
    return model


def average_generators(raws: Float[Tensor, "tasks parts blocks entries"]) -> Float[Tensor, "parts blocks entries"]:
    """Return (1/T)(Σ‖A_i‖/‖ΣA_i‖)ΣA_i of each part; 0 if the sum is 0."""
    total = raws.sum(0)
    length = torch.linalg.vector_norm(total, dim=(-2, -1), keepdim=True)
    lengths = torch.linalg.vector_norm(raws, dim=(-2, -1), keepdim=True).sum(0)
    return torch.where(length > 0, lengths / length.clamp_min(torch.finfo(raws.dtype).tiny), 0) * total / len(raws)


def _get_raw_generators(change: nn.Module) -> Tensor:
    assert isinstance(change, WeightChange)
    generators = change.get_generators()
    assert generators is not None
    return generators
