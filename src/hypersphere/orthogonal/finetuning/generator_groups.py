"""Parameter groups for fine-tuning whose learning rates are scaled by the size of the generators."""

from typing import Any

from torch import nn

from ..parametrization import find_rotated
from .adapter import Adapter


def group_finetuned(model: nn.Module, lr: float, *, scale: bool = True) -> list[dict[str, Any]]:
    """Return the trainable parameters of a tuned model as parameter groups, with scaled learning rates for generators.

    A step of Adam changes every entry of a skew-symmetric generator by about the learning rate, so the angle of the
    rotation changes by about the learning rate times √(number of entries). Dividing by this root makes one learning rate
    suitable for every block size.

    Args:
        model: A model tuned by :func:`finetune`.
        lr: The learning rate of a generator with one entry, and of all other parameters.
        scale: Whether to divide the learning rate of a generator with b(b − 1)/2 entries by the root of that number.

    Returns:
        Parameter groups for any optimizer, one for each learning rate.

    Raises:
        ValueError: If ``lr`` is negative.

    >>> from hypersphere.orthogonal import finetune
    >>> net = finetune(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 2)), block=8)
    >>> [(round(group["lr"], 4), len(group["params"])) for group in group_finetuned(net, lr=0.01)]
    [(0.01, 2), (0.0019, 1)]
    """
    if not lr >= 0:
        raise ValueError(f"lr must be a number ≥ 0, got {lr!r}")
    factors = find_rate_factors(model) if scale else {}
    groups: dict[float, list[nn.Parameter]] = {}
    for parameter in model.parameters():
        if parameter.requires_grad:
            groups.setdefault(factors.get(id(parameter), 1.0), []).append(parameter)
    return [{"params": held, "lr": lr * factor} for factor, held in sorted(groups.items(), reverse=True)]


def find_rate_factors(model: nn.Module) -> dict[int, float]:
    """Return the factor of the learning rate by the id of the parameter: 1/√(entries) for a generator, otherwise 1."""
    parametrizations = [site.parametrization for site in find_rotated(model).values()]
    tasks = [task for adapter in parametrizations if isinstance(adapter, Adapter) for task in adapter.tasks.values()]
    return {id(parameter): factor for task in tasks for parameter, factor in task.list_rate_factors()}  # type: ignore[union-attr, operator]
