"""Any network's Conv, Linear and attention layers as operators, with the weights they have, and back (4.4.3)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from ..angular import AngularLike, as_angular
from ..neurons import Selector, matches, neuron_layers
from .attention import AttentionOperator, AttentionScale
from .core import OperatorLayer
from .kinds import obstacle, operator_class, plain_class
from .magnitudes import MagnitudeLike, as_magnitude
from .operator import Operator


@dataclass
class Conversion:
    """What was changed, what was not and why, by the modules' names; prints as a table.

    ``new_parameters`` names what the magnitudes and angles learn: an optimizer made before does not have them.

    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> report = convert(net, skip=["2"])
    >>> report.converted, report.skipped
    ({'0': 'Linear with magnitude Sphere, angle Cosine'}, {'2': 'named in skip'})
    """

    converted: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    new_parameters: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        rows = [(name or "(the model)", "converted", text) for name, text in self.converted.items()]
        rows += [(name or "(the model)", "skipped", text) for name, text in self.skipped.items()]
        rows += [(name, "new", "parameter to give to the optimizer") for name in self.new_parameters]
        width = max((len(name) for name, _, _ in rows), default=0)
        return "\n".join(f"{name:<{width}}  {what:<9}  {text}" for name, what, text in rows)


def convert(
    model: nn.Module,
    magnitude: MagnitudeLike | None = None,
    angular: AngularLike | None = None,
    *,
    operator: Operator | None = None,
    layers: Iterable[Selector] | None = None,
    skip: Iterable[Selector] = (),
    attention: AttentionScale | None = AttentionScale(),  # noqa: B008 (a frozen value)
) -> Conversion:
    r"""Turn the Conv, Linear and attention layers of any model into operators f = h·g(θ), in place.

    Every module stays the object it was, with its parameters, hooks and names; only its class changes, so optimizers,
    ``state_dict`` files of the plain network and references go on working. :func:`restore` is the way back.

    Args:
        model: any network.
        magnitude: h, Sphere by default; what it learns is each layer's own.
        angular: g, Cosine by default.
        operator: h, g and the layers to leave out as one value, in place of ``magnitude`` and ``angular``.
        layers: only these, by name or pattern, type, module or predicate (:func:`hypersphere.neurons.neuron_layers`).
        skip: not these.
        attention: ``nn.MultiheadAttention`` becomes :class:`~hypersphere.operators.CosineAttention` with this scale, and
            its projections become operators; None leaves attention as it is.

    Returns:
        What became an operator, what did not and why, and which parameters are new.

    Raises:
        ValueError: if no layer could be converted.

    >>> from torch import nn
    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 10))
    >>> print(convert(net, skip=["3"]))
    0  converted  Conv2d with magnitude Sphere, angle Cosine
    3  skipped    named in skip
    """
    if operator is None:
        h = None if magnitude is None else as_magnitude(magnitude)
        operator = Operator(h, None if angular is None else as_angular(angular))
    elif magnitude is not None or angular is not None:
        raise ValueError(f"an operator has a magnitude and an angle of its own; got {operator} and one of them as well")
    layers, skip = None if layers is None else list(layers), [*operator.skip, *skip]
    selected = neuron_layers(model, types=(nn.Module,), only=layers, skip=skip)
    report, holders = Conversion(), _holders(model)
    for pattern in operator.skip:
        if not any(matches(name, module, pattern) for name, module in holders.items()):
            raise ValueError(f"skip names {pattern!r}, which is no layer of {type(model).__name__}")
    for name, module in holders.items():
        if name not in selected:
            by_skip = any(matches(name, module, s) for s in skip)
            report.skipped[name] = "named in skip" if by_skip else "not among layers"
        elif attention is None and isinstance(module, nn.MultiheadAttention):
            report.skipped[name] = "attention is None"
        elif reason := obstacle(model, name):
            report.skipped[name] = reason
        else:
            report.converted[name], new = _become(module, operator, attention)
            report.new_parameters += [".".join(filter(None, (name, parameter))) for parameter in new]
    report.skipped |= dict(_others(model))
    if not report.converted:
        raise ValueError(f"no layer of {type(model).__name__} was converted:\n{report}")
    _leave_the_fast_path(model)
    return report


def restore(model: nn.Module, *, layers: Iterable[Selector] | None = None) -> Conversion:
    r"""Turn the Conv and Linear operators of a model back into plain layers, with the weights they have now, in place.

    ``layers`` selects as in :func:`convert`; None is all of them.

    >>> layer = torch.nn.Linear(3, 4)
    >>> _ = convert(layer)
    >>> print(restore(layer), type(layer).__name__)
    (the model)  converted  Linear Linear
    """
    report = Conversion()
    for name, module in neuron_layers(model, types=(nn.Module,), only=layers).items():
        if not isinstance(module, OperatorLayer):
            continue
        parts: dict[str, nn.Module] = {name: module}
        if isinstance(module, AttentionOperator):  # plain attention would use the output's weight without calling it
            parts[f"{name}.out_proj".lstrip(".")] = module.out_proj
        if any(plain_class(part) is None for part in parts.values()):
            report.skipped[name] = "its weight is parametrized: remove the parametrization first"
            continue
        for part, layer in parts.items():
            if isinstance(layer, OperatorLayer):
                layer.couple()
                layer.__class__ = plain_class(layer)  # type: ignore[assignment]
                report.converted[part] = type(layer).__name__
    _return_to_the_fast_path(model)
    return report


def _holders(model: nn.Module) -> dict[str, nn.Module]:
    """Attention, and the modules with a weight of two or more axes, or one whose size is not known yet."""
    found = {name: (module, getattr(module, "weight", None)) for name, module in model.named_modules()}
    return {
        name: module
        for name, (module, weight) in found.items()
        if isinstance(module, nn.MultiheadAttention)
        or (isinstance(weight, Tensor) and (isinstance(weight, UninitializedParameter) or weight.ndim >= 2))
    }


def _others(model: nn.Module) -> Iterator[tuple[str, str]]:
    """The matrices of the model that no layer keeps as its ``weight``, and why they stay as they are."""
    for name, module in model.named_modules():
        for key, parameter in module.named_parameters(recurse=False):
            sized = isinstance(parameter, UninitializedParameter) or parameter.ndim >= 2
            if key != "weight" and sized and not hasattr(module, "decoupled_weights"):
                yield ".".join(filter(None, (name, key))), f"{type(module).__name__} uses it in a forward of its own"


def _become(module: nn.Module, operator: Operator, attention: AttentionScale | None) -> tuple[str, list[str]]:
    """Make a layer an operator; what it is now, and the names of the parameters that are new."""
    plain, cls, old = type(module), operator_class(module), {name for name, _ in module.named_parameters()}
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


# In evaluation torch's transformer encoder hands the weights of its Linear layers to one fused kernel, without calling
# the layers. It does so only under these settings of its own.
_FAST_PATH = {
    nn.TransformerEncoderLayer: ("activation_relu_or_gelu", 0),
    nn.TransformerEncoder: ("use_nested_tensor", False),
}


def _leave_the_fast_path(model: nn.Module) -> None:
    for module in model.modules():
        for kind, (setting, off) in _FAST_PATH.items():
            if isinstance(module, kind) and any(isinstance(child, OperatorLayer) for child in module.modules()):
                module.__dict__.setdefault("_fast_path", getattr(module, setting))
                setattr(module, setting, off)


def _return_to_the_fast_path(model: nn.Module) -> None:
    for module in model.modules():
        for kind, (setting, _) in _FAST_PATH.items():
            if isinstance(module, kind) and not any(isinstance(child, OperatorLayer) for child in module.modules()):
                setattr(module, setting, module.__dict__.pop("_fast_path", getattr(module, setting)))
