"""Conversion of the Conv, Linear and attention layers of any network into operators and back, keeping weights (4.4.3)."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch.nn.utils import parametrize

from ..angular import AngularLike, as_angular
from ..neurons import ChangeReport, Selectors, as_selectors, attach_change_report, matches, neuron_layers
from .attention import AttentionOperator, AttentionScale, CosineAttention
from .conv import Conv1d, Conv2d, Conv3d, ConvOperator
from .linear import Linear, LinearOperator
from .magnitudes import MagnitudeLike, as_magnitude
from .operator import Operator
from .operator_layer import OperatorLayer

# The operator class of each layer of torch.nn, and the mixin that makes an operator of a class derived from it.
_OPERATORS: dict[type[nn.Module], tuple[type[OperatorLayer], type[OperatorLayer]]] = {
    nn.Linear: (Linear, LinearOperator),
    nn.Conv1d: (Conv1d, ConvOperator),
    nn.Conv2d: (Conv2d, ConvOperator),
    nn.Conv3d: (Conv3d, ConvOperator),
    nn.MultiheadAttention: (CosineAttention, AttentionOperator),
}
_DERIVED: dict[tuple[type[OperatorLayer], type[nn.Module]], type[OperatorLayer]] = {}


def convert(
    model: nn.Module,
    magnitude: MagnitudeLike | None = None,
    angular: AngularLike | None = None,
    *,
    operator: Operator | None = None,
    only: Selectors | None = None,
    skip: Selectors = (),
    attention: AttentionScale | None = AttentionScale(),  # noqa: B008 (a frozen value)
) -> nn.Module:
    r"""Turn the Conv, Linear and attention layers of a model into operators f = h·g(θ) + b (eq. 4.3), in place.

    Every module stays the same object with its parameters, hooks and name; only its class changes. Optimizers,
    ``state_dict`` files of the plain network and references to modules therefore keep working. :func:`restore` converts
    back. :func:`~hypersphere.neurons.get_change_report` tells which layers were converted, which were skipped and why, and
    which parameters are new.

    Args:
        model: Any network.
        magnitude: h, Sphere by default. Each layer learns its own parameters of h.
        angular: g, Cosine by default.
        operator: h, g and the layers to skip in one value, instead of ``magnitude`` and ``angular``.
        only: Layers to convert: names or patterns, types, modules or predicates ``(name, module) → bool``, one or
            several. None means all.
        skip: Layers that are not changed, selected in the same ways.
        attention: The scale with which ``nn.MultiheadAttention`` becomes
            :class:`~hypersphere.operators.CosineAttention`, whose projections are operators. None skips attention.

    Returns:
        The model.

    Raises:
        ValueError: If no layer could be converted, if a name in ``only`` or ``skip`` matches no layer, or if
            ``operator`` is given together with ``magnitude`` or ``angular``.

    >>> from torch import nn
    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 10))
    >>> print(hs.get_change_report(convert(net, skip="3")))
    0  changed  Conv2d with magnitude Sphere, angle Cosine
    3  skipped  named in skip
    """
    if operator is None:
        h = None if magnitude is None else as_magnitude(magnitude)
        operator = Operator(h, None if angular is None else as_angular(angular))
    elif magnitude is not None or angular is not None:
        raise ValueError(
            f"pass either operator or magnitude and angular, got {operator} together with "
            + ("magnitude" if magnitude is not None else "angular")
        )
    only, skip = None if only is None else as_selectors(only), [*operator.skip, *as_selectors(skip)]
    selected = neuron_layers(model, types=(nn.Module,), only=only, skip=skip)
    report, candidates = ChangeReport(), _find_candidates(model)
    for pattern in operator.skip:
        if not any(matches(name, module, pattern) for name, module in candidates.items()):
            raise ValueError(f"skip names {pattern!r}, which matches no layer of {type(model).__name__}")
    for name, module in candidates.items():
        if name not in selected:
            is_skipped = any(matches(name, module, s) for s in skip)
            report.skipped[name] = "named in skip" if is_skipped else "not named in only"
        elif attention is None and isinstance(module, nn.MultiheadAttention):
            report.skipped[name] = "attention is None"
        elif reason := explain_obstacle(model, name):
            report.skipped[name] = reason
        else:
            report.changed[name], new = _convert_layer(module, operator, attention)
            report.new_parameters += [".".join(filter(None, (name, parameter))) for parameter in new]
    report.skipped |= dict(_find_other_matrices(model))
    if not report.changed:
        raise ValueError(f"no layer of {type(model).__name__} was converted:\n{report}")
    _disable_fast_path(model)
    attach_change_report(model, report)
    return model


def restore(model: nn.Module, *, only: Selectors | None = None, skip: Selectors = ()) -> nn.Module:
    r"""Turn the operators of a model back into plain layers with their current weights, in place.

    It undoes :func:`convert`. :func:`~hypersphere.neurons.get_change_report` tells which layers were restored.

    Args:
        model: A network with operators; plain layers are not changed.
        only: Operators to restore, selected as in :func:`convert`. None means all.
        skip: Operators to keep.

    Returns:
        The model.

    Raises:
        ValueError: If a name in ``only`` or ``skip`` matches no module.

    >>> layer = restore(convert(torch.nn.Linear(3, 4)))
    >>> print(hs.get_change_report(layer), type(layer) is torch.nn.Linear)
    (the model)  changed  Linear True
    """
    report = ChangeReport()
    only = None if only is None else as_selectors(only)
    for name, module in neuron_layers(model, types=(nn.Module,), only=only, skip=as_selectors(skip)).items():
        if not isinstance(module, OperatorLayer):
            continue
        parts: dict[str, nn.Module] = {name: module}
        if isinstance(module, AttentionOperator):  # plain attention would use the output's weight without calling it
            parts[f"{name}.out_proj".lstrip(".")] = module.out_proj
        if any(find_plain_class(part) is None for part in parts.values()):
            report.skipped[name] = "its weight is parametrized: remove the parametrization first"
            continue
        for part, layer in parts.items():
            if isinstance(layer, OperatorLayer):
                layer.couple()
                layer.__class__ = find_plain_class(layer)  # type: ignore[assignment]
                report.changed[part] = type(layer).__name__
    _enable_fast_path(model)
    attach_change_report(model, report)
    return model


def explain_obstacle(model: nn.Module, name: str) -> str | None:
    """Return why the module of this name cannot become an operator, or None if it can."""
    module, parent = model.get_submodule(name), model.get_submodule(name.rpartition(".")[0])
    if isinstance(module, OperatorLayer):
        return "already an operator"
    if parametrize.is_parametrized(module):
        return "its weight is parametrized: convert first, then parametrize"
    if isinstance(module, nn.MultiheadAttention):
        overridden = find_operator_class(module) is None
        return f"{type(module).__name__} has a forward of its own" if overridden else None
    if isinstance(module.weight, UninitializedParameter):
        return "its weight has no size yet: run the network once first"
    if isinstance(parent, nn.MultiheadAttention) and not isinstance(parent, OperatorLayer):
        return "MultiheadAttention uses its weight without calling it"
    if type(module).__name__ == "Conv1D" and module.weight.ndim == 2:  # type: ignore[union-attr, operator]
        return "Conv1D of transformers stores its neurons as columns: replace it by an nn.Linear first"
    if find_operator_class(module) is None:
        return f"{type(module).__name__} is not a Conv or Linear layer, or has a forward of its own"
    return None


def find_operator_class(module: nn.Module) -> type[OperatorLayer] | None:
    """Return the operator class for a module, or None if its forward is not the one of a torch.nn layer.

    A class derived from a layer of torch.nn qualifies if it inherits ``forward``. Any other class whose name contains
    "Linear" qualifies if it computes the same as ``F.linear`` with its weight and bias.
    """
    cls = type(module)
    if cls in _OPERATORS:
        return _OPERATORS[cls][0]
    for plain, (_, operator) in _OPERATORS.items():
        if issubclass(cls, plain):
            overridden = any(
                getattr(cls, method, None) is not getattr(plain, method, None)
                for method in ("forward", "_conv_forward")
            )
            return None if overridden else _derive_class(operator, cls)
    return _derive_class(LinearOperator, cls) if _computes_linear(module) else None


def find_plain_class(module: nn.Module) -> type[nn.Module] | None:
    """Return the class of a layer without the operator, or None if the layer is parametrized, which changes its class."""
    if parametrize.is_parametrized(module):
        return None
    return next(c for c in type(module).__mro__ if issubclass(c, nn.Module) and not issubclass(c, OperatorLayer))


def _find_candidates(model: nn.Module) -> dict[str, nn.Module]:
    """Return the attention modules and all modules whose weight has two or more axes or an unknown size."""
    weights = {name: (module, getattr(module, "weight", None)) for name, module in model.named_modules()}
    return {
        name: module
        for name, (module, weight) in weights.items()
        if isinstance(module, nn.MultiheadAttention)
        or (isinstance(weight, Tensor) and (isinstance(weight, UninitializedParameter) or weight.ndim >= 2))
    }


def _find_other_matrices(model: nn.Module) -> Iterator[tuple[str, str]]:
    """Yield the matrices that are not the ``weight`` of a layer, with the reason why they are not converted."""
    for name, module in model.named_modules():
        for key, parameter in module.named_parameters(recurse=False):
            sized = isinstance(parameter, UninitializedParameter) or parameter.ndim >= 2
            if key != "weight" and sized and not hasattr(module, "decoupled_weights"):
                yield ".".join(filter(None, (name, key))), f"{type(module).__name__} uses it in a forward of its own"


def _convert_layer(module: nn.Module, operator: Operator, attention: AttentionScale | None) -> tuple[str, list[str]]:
    """Convert a layer into an operator; return its description and the names of its new parameters."""
    plain, cls, old = type(module), find_operator_class(module), {name for name, _ in module.named_parameters()}
    assert cls is not None
    module.__class__ = cls
    assert isinstance(module, OperatorLayer)
    try:
        if isinstance(module, AttentionOperator):
            module.decouple(operator.magnitude, operator.angular, attention)
        else:
            module.decouple(operator.magnitude, operator.angular)
    except ValueError:
        module.__class__ = plain  # type: ignore[assignment]
        raise
    kind = f"{plain.__name__} by cosines" if isinstance(module, AttentionOperator) else plain.__name__
    text = f"{kind} with magnitude {type(module.magnitude).__name__}, angle {type(module.angular).__name__}"
    return text, [name for name, _ in module.named_parameters() if name not in old]


def _derive_class(operator: type[OperatorLayer], cls: type[nn.Module]) -> type[OperatorLayer]:
    """Return ``cls`` with the forward of an operator; the same arguments give the same class.

    The class exists only in this process, so pickle stores the two base classes instead.
    """
    if (operator, cls) in _DERIVED:
        return _DERIVED[operator, cls]

    def reduce(self: nn.Module) -> tuple[Any, ...]:
        return _create_empty, (operator, cls), self.__dict__

    namespace = {"__module__": cls.__module__, "__doc__": cls.__doc__, "__reduce__": reduce}
    return _DERIVED.setdefault((operator, cls), type(cls.__name__, (operator, cls), namespace))


def _create_empty(operator: type[OperatorLayer], cls: type[nn.Module]) -> nn.Module:
    derived = _derive_class(operator, cls)
    return derived.__new__(derived)


def _computes_linear(module: nn.Module) -> bool:
    """Return whether a layer of another library computes F.linear, by comparing both on a random input."""
    weight, bias = module.weight, getattr(module, "bias", None)
    if "Linear" not in type(module).__name__ or not isinstance(weight, Tensor) or weight.ndim != 2 or weight.is_meta:
        return False
    x = torch.randn(3, weight.shape[1], generator=torch.Generator().manual_seed(0)).to(weight)
    with torch.no_grad():
        try:
            out = type(module).forward(module, x)
        except (TypeError, ValueError, RuntimeError):  # a layer that does not accept one matrix is not F.linear
            return False
        expected = F.linear(x, weight, bias) if bias is None or bias.shape == weight.shape[:1] else None
        return (
            isinstance(out, Tensor)
            and expected is not None
            and out.shape == expected.shape
            and torch.allclose(out, expected)
        )


# In evaluation, torch's transformer encoder passes the weights of its Linear layers to one fused kernel without calling
# the layers, which would bypass the operators. These settings, with these values, turn the fused kernel off.
_FAST_PATH = {
    nn.TransformerEncoderLayer: ("activation_relu_or_gelu", 0),
    nn.TransformerEncoder: ("use_nested_tensor", False),
}


def _disable_fast_path(model: nn.Module) -> None:
    for module in model.modules():
        for kind, (setting, off) in _FAST_PATH.items():
            if isinstance(module, kind) and any(isinstance(child, OperatorLayer) for child in module.modules()):
                module.__dict__.setdefault("_fast_path", getattr(module, setting))
                setattr(module, setting, off)


def _enable_fast_path(model: nn.Module) -> None:
    for module in model.modules():
        for kind, (setting, _) in _FAST_PATH.items():
            if isinstance(module, kind) and not any(isinstance(child, OperatorLayer) for child in module.modules()):
                setattr(module, setting, module.__dict__.pop("_fast_path", getattr(module, setting)))
