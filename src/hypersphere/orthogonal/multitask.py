"""Several tasks over one set of neurons, with one R each (F.8)."""

import torch
from torch import nn

from .parametrization import Start, require_rotated


def add_task(
    model: nn.Module, task: str, *, start: Start = "usual", generator: torch.Generator | None = None
) -> nn.Module:
    """Give every over-parameterized or finetuned layer an R of its own for ``task``; the task in use stays in use.

    The first R belongs to the task ``"default"``. A map with parameters of its own is copied from the task
    in use. Give the new parameters to an optimizer.

    Args:
        model: a model changed by :func:`overparameterize` or :func:`finetune`.
        task: the name of the new task: letters, digits and underscores.
        start: where the new R starts, as in :func:`overparameterize`; a tuned layer starts from the identity.
        generator: random generator for R.

    Returns:
        The model.

    Raises:
        ValueError: if no layer has an R, or if the name is not allowed or taken.

    >>> from hypersphere.orthogonal import overparameterize
    >>> net = add_task(overparameterize(torch.nn.Linear(4, 2)), "b")
    >>> use_task(net, "b").parametrizations.weight[0].active
    'b'
    """
    found = {name: site.own for name, site in require_rotated(model).items()}
    if not task.isidentifier():  # it becomes a part of a state_dict's key
        raise ValueError(f"task must be a name of letters, digits and underscores, got {task!r}")
    for name, own in found.items():
        if task in own.tasks:
            raise ValueError(f"layer {name!r} has a task {task!r} already")
    for own in found.values():
        own.add_like(task, start, generator)
    return model


def use_task(model: nn.Module, task: str) -> nn.Module:
    """Switch every over-parameterized or finetuned layer to the R of ``task``.

    Like train and eval mode, the choice is not in the ``state_dict``.

    Args:
        model: a model with several tasks.
        task: the name of the task.

    Returns:
        The model.

    Raises:
        ValueError: if a layer has no such task, or if the model is merged with ``keep=True``.

    >>> net = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 2))
    >>> _ = hs.overparameterize(net, "cayley")
    >>> _ = hs.orthogonal.add_task(net, "second")
    >>> use_task(net, "second") is net
    True
    """
    found = {name: site.own for name, site in require_rotated(model).items()}
    for name, own in found.items():
        if task not in own.tasks:
            raise ValueError(f"layer {name!r} has no task {task!r}; its tasks are {', '.join(own.tasks)}")
        if own.kept is not None:
            raise ValueError("the model is merged with keep=True, so another task would not act: unmerge(model) first")
    for own in found.values():
        own.active = task
    return model
