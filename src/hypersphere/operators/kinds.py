"""Which class a plain layer becomes as an operator, which one an operator came from, and why some layers cannot."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch.nn.utils import parametrize

from .attention import AttentionOperator, CosineAttention
from .conv import Conv1d, Conv2d, Conv3d, ConvOperator
from .core import OperatorLayer
from .linear import Linear, LinearOperator

_OPERATORS: dict[type[nn.Module], tuple[type[OperatorLayer], type[OperatorLayer]]] = {
    nn.Linear: (Linear, LinearOperator),
    nn.Conv1d: (Conv1d, ConvOperator),
    nn.Conv2d: (Conv2d, ConvOperator),
    nn.Conv3d: (Conv3d, ConvOperator),
    nn.MultiheadAttention: (CosineAttention, AttentionOperator),
}
_MIXED: dict[tuple[type[OperatorLayer], type[nn.Module]], type[OperatorLayer]] = {}


def obstacle(model: nn.Module, name: str) -> str | None:
    """Why the module of this name cannot become an operator, or None."""
    module, parent = model.get_submodule(name), model.get_submodule(name.rpartition(".")[0])
    if isinstance(module, OperatorLayer):
        return "already an operator"
    if parametrize.is_parametrized(module):
        return "its weight is parametrized: convert first, then parametrize"
    if isinstance(module, nn.MultiheadAttention):
        own = operator_class(module) is None
        return f"{type(module).__name__} has a forward of its own" if own else None
    if isinstance(module.weight, UninitializedParameter):
        return "its weight has no size yet: run the network once first"
    if isinstance(parent, nn.MultiheadAttention) and not isinstance(parent, OperatorLayer):
        return "MultiheadAttention uses its weight without calling it"
    if type(module).__name__ == "Conv1D" and module.weight.ndim == 2:  # type: ignore[union-attr, operator]
        return "Conv1D of transformers keeps its neurons as columns: make it an nn.Linear first"
    if operator_class(module) is None:
        return f"{type(module).__name__} is not a Conv or Linear layer, or has a forward of its own"
    return None


def operator_class(module: nn.Module) -> type[OperatorLayer] | None:
    """The operator's class for a module: the library's own, or one made of an operator and the module's class.

    A class derived from torch's is taken when it inherits its forward; another one whose name says Linear, when it
    computes what ``F.linear`` does with its weight and bias.
    """
    cls = type(module)
    if cls in _OPERATORS:
        return _OPERATORS[cls][0]
    for plain, (_, operator) in _OPERATORS.items():
        if issubclass(cls, plain):
            own = any(
                getattr(cls, method, None) is not getattr(plain, method, None)
                for method in ("forward", "_conv_forward")
            )
            return None if own else _mixed(operator, cls)
    return _mixed(LinearOperator, cls) if _computes_linear(module) else None


def plain_class(module: nn.Module) -> type[nn.Module] | None:
    """The class an operator's layer has without the operator; None where a parametrization made its class."""
    if parametrize.is_parametrized(module):
        return None
    return next(c for c in type(module).__mro__ if issubclass(c, nn.Module) and not issubclass(c, OperatorLayer))


def _mixed(operator: type[OperatorLayer], cls: type[nn.Module]) -> type[OperatorLayer]:
    """``cls`` with an operator's forward, the same class each time; pickled by its two parts, as it has no name."""
    if (operator, cls) in _MIXED:
        return _MIXED[operator, cls]

    def reduce(self: nn.Module) -> tuple[Any, ...]:
        return _blank, (operator, cls), self.__dict__

    namespace = {"__module__": cls.__module__, "__doc__": cls.__doc__, "__reduce__": reduce}
    return _MIXED.setdefault((operator, cls), type(cls.__name__, (operator, cls), namespace))


def _blank(operator: type[OperatorLayer], cls: type[nn.Module]) -> nn.Module:
    made = _mixed(operator, cls)
    return made.__new__(made)


def _computes_linear(module: nn.Module) -> bool:
    """Whether a foreign class is F.linear under another name: its name says so and a random input agrees."""
    weight, bias = module.weight, getattr(module, "bias", None)
    if "Linear" not in type(module).__name__ or not isinstance(weight, Tensor) or weight.ndim != 2 or weight.is_meta:
        return False
    x = torch.randn(3, weight.shape[1], generator=torch.Generator().manual_seed(0)).to(weight)
    with torch.no_grad():
        try:
            out = type(module).forward(module, x)
        except (TypeError, ValueError, RuntimeError):  # it takes something else than one matrix: not F.linear
            return False
        expected = F.linear(x, weight, bias) if bias is None or bias.shape == weight.shape[:1] else None
        return (
            isinstance(out, Tensor)
            and expected is not None
            and out.shape == expected.shape
            and torch.allclose(out, expected)
        )
