"""Which parameters learn while a model is fine-tuned, and the way back."""

from collections.abc import Iterable

from torch import nn

from ...neurons import Selector, matches

_MARK = "_frozen_for_tuning"  # on a module: the names of its parameters that were trained before


def freeze(model: nn.Module, rotations: set[int], train: Iterable[Selector]) -> None:
    """Freeze every parameter but the rotations, given by their ids, and those of modules that ``train`` selects.

    A selected module is trained with all modules inside it. Each module remembers what was frozen of its own, so that
    :func:`thaw` finds it in a copy or a part of the model as well.
    """
    train = list(train)
    chosen = [name for name, module in model.named_modules() if any(matches(name, module, s) for s in train)]
    for name, module in model.named_modules():
        if any(name == c or c == "" or name.startswith(f"{c}.") for c in chosen):
            continue
        mine = [
            key for key, p in module._parameters.items() if p is not None and p.requires_grad and id(p) not in rotations
        ]
        for key in mine:
            module._parameters[key].requires_grad_(False)  # type: ignore[union-attr]
        if mine:
            object.__setattr__(module, _MARK, mine)


def thaw(model: nn.Module) -> None:
    """Let everything learn again that :func:`freeze` stopped."""
    for module in model.modules():
        for key in module.__dict__.pop(_MARK, ()):
            parameter = module._parameters.get(key)
            if parameter is not None:
                parameter.requires_grad_(True)
