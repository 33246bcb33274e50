"""Several tasks that share one set of neurons, each with a separate R (F.8)."""

import torch
from torch import nn

from .parametrization import Start, require_rotated


def add_task(
    model: nn.Module, task: str, *, start: Start = "usual", generator: torch.Generator | None = None
) -> nn.Module:
    """Add a separate R for ``task`` to every over-parameterized or finetuned layer, without activating it.

    The first R belongs to the task ``"default"``. A map with parameters is copied from the active task. Add the new
    parameters to an optimizer.

    Args:
        model: A model changed by :func:`overparameterize` or :func:`finetune`.
        task: Name of the new task: letters, digits and underscores.
        start: Initialization of the new R, as in :func:`overparameterize`. A finetuned layer starts from the identity.
        generator: Random generator for R.

    Returns:
        The model.

    Raises:
        ValueError: If no layer has an R, or the name is invalid or already in use.

    >>> from hypersphere.orthogonal import overparameterize
    >>> net = add_task(overparameterize(torch.nn.Linear(4, 2)), "b")
    >>> use_task(net, "b").parametrizations.weight[0].active
    'b'
    """
    parametrizations = {name: site.parametrization for name, site in require_rotated(model).items()}
    if not task.isidentifier():  # it becomes a part of a state_dict's key
        raise ValueError(f"task must be a name of letters, digits and underscores, got {task!r}")
    for name, parametrization in parametrizations.items():
        if task in parametrization.tasks:
            raise ValueError(f"layer {name!r} has a task {task!r} already")
    for parametrization in parametrizations.values():
        parametrization.add_like(task, start, generator)
    return model


def use_task(model: nn.Module, task: str) -> nn.Module:
    """Switch every over-parameterized or finetuned layer to the R of ``task``.

    Like train and eval mode, the active task is not part of the ``state_dict``.

    Args:
        model: A model with several tasks.
        task: Name of the task.

    Returns:
        The model.

    Raises:
        ValueError: If a layer does not have the task, or the model is merged with ``keep=True``.

    >>> net = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 2))
    >>> _ = hs.overparameterize(net, "cayley")
    >>> _ = hs.orthogonal.add_task(net, "second")
    >>> use_task(net, "second") is net
    True
    """
    parametrizations = {name: site.parametrization for name, site in require_rotated(model).items()}
    for name, parametrization in parametrizations.items():
        if task not in parametrization.tasks:
            raise ValueError(f"layer {name!r} has no task {task!r}; its tasks are {', '.join(parametrization.tasks)}")
        if parametrization.merged_weight is not None:
            raise ValueError(
                "the model is merged with keep=True, so another task would have no effect: unmerge(model) first"
            )
    for parametrization in parametrizations.values():
        parametrization.active = task
    return model
