"""Freezing of everything that fine-tuning does not train, and the way back."""

from collections.abc import Iterable

from torch import nn

from ...neurons import Selector, matches

_MARK = "_frozen_for_tuning"  # attribute of a module: names of its parameters that were trainable before


def freeze(model: nn.Module, rotations: set[int], train: Iterable[Selector]) -> None:
    """Freeze every parameter except the rotations, given by their ids, and the modules that ``train`` selects.

    A selected module is trained with all modules inside it. Each module records which of its parameters were
    frozen, so that :func:`thaw` also works for a copy or a part of the model.
    """
    train = list(train)
    chosen = [name for name, module in model.named_modules() if any(matches(name, module, s) for s in train)]
    for name, module in model.named_modules():
        if any(name == c or c == "" or name.startswith(f"{c}.") for c in chosen):
            continue
        for key, parameter in module._parameters.items():
            if parameter is not None and id(parameter) not in rotations:
                freeze_parameter(module, key)


def freeze_parameter(module: nn.Module, key: str) -> None:
    """Freeze one parameter of a module and remember it, unless it is frozen already."""
    parameter = module._parameters[key]
    assert parameter is not None
    if parameter.requires_grad:
        parameter.requires_grad_(False)
        module.__dict__.setdefault(_MARK, []).append(key)


def thaw(model: nn.Module) -> None:
    """Make everything trainable again that :func:`freeze` froze."""
    for module in model.modules():
        for key in module.__dict__.pop(_MARK, ()):
            parameter = module._parameters.get(key)
            if parameter is not None:
                parameter.requires_grad_(True)
