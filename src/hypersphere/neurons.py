"""Which modules of a network hold neurons: shared by conversion, energy and over-parameterization.

A neuron is a row of a weight: ``(neurons, …)``, flattened to ``(neurons, dim)``.
"""

import fnmatch
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from jaxtyping import Float
from torch import Tensor, nn

Selector: TypeAlias = "str | type[nn.Module] | nn.Module | Callable[[str, nn.Module], bool]"
NEURON_LAYERS: tuple[type[nn.Module], ...] = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


class Classifier(nn.Module):
    """What classifies a feature by rows of a weight: the base of every head, so that energy, over-parameterization and training find it.

    ``weight`` has one row (or ``sub_centers`` rows) for each of ``num_classes`` classes.
    """

    weight: Tensor
    num_classes: int
    sub_centers: int = 1


def neurons(module: nn.Module) -> Float[Tensor, "neurons dim"]:
    """The rows of a layer's weight as it acts in the forward pass, whatever parametrizes it.

    >>> neurons(torch.nn.Conv2d(3, 8, 5)).shape
    torch.Size([8, 75])
    """
    weight = module.weight
    if not isinstance(weight, Tensor) or weight.ndim < 2:
        raise ValueError(f"a layer with neurons has a weight of two or more dimensions, got {type(module).__name__}")
    return weight.flatten(1)


def neuron_layers(
    model: nn.Module,
    *,
    types: tuple[type[nn.Module], ...] = NEURON_LAYERS,
    only: Iterable[Selector] | None = None,
    skip: Iterable[Selector] = (),
) -> dict[str, nn.Module]:
    """The Linear and Conv layers of a model by name, in the order of registration, each module once.

    ``only`` and ``skip`` take names (``"layer1.*"`` patterns as well), types, module objects or predicates
    ``(name, module) → bool``. A name or pattern that matches nothing is an error, not a silent no-op.

    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> list(neuron_layers(net)), list(neuron_layers(net, skip=["2"]))
    (['0', '2'], ['0'])
    """
    found = {name: module for name, module in model.named_modules() if isinstance(module, types)}
    only = None if only is None else list(only)
    skip = list(skip)
    _check_names(model, [*(only or []), *skip])
    return {
        name: module
        for name, module in found.items()
        if (only is None or any(matches(name, module, s) for s in only))
        and not any(matches(name, module, s) for s in skip)
    }


def output_layer(model: nn.Module) -> str | None:
    """The name of the classifier: the last :class:`Classifier`, else the last Linear layer, in order of registration; or None.

    >>> output_layer(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 3)))
    '1'
    """
    for kind in (Classifier, nn.Linear):
        names = [name for name, module in model.named_modules() if isinstance(module, kind)]
        if names:
            return names[-1]
    return None


def matches(name: str, module: nn.Module, selector: Selector) -> bool:
    """Whether one selector means this module."""
    if isinstance(selector, str):
        return fnmatch.fnmatchcase(name, selector)
    if isinstance(selector, type):
        return isinstance(module, selector)
    if isinstance(selector, nn.Module):
        return module is selector
    return bool(selector(name, module))


def _check_names(model: nn.Module, selectors: Iterable[Selector]) -> None:
    names = [name for name, _ in model.named_modules()]
    for selector in selectors:
        if isinstance(selector, str) and not any(_matching(names, selector)):
            raise ValueError(
                f"no module of {type(model).__name__} is called {selector!r}; its modules are {', '.join(filter(None, names))}"
            )


def _matching(names: list[str], pattern: str) -> Iterator[bool]:
    return (fnmatch.fnmatchcase(name, pattern) for name in names)
