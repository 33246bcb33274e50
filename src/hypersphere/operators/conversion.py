"""Any network's Conv and Linear layers as operators, with the weights they have, and back (4.4.3)."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from ..angular import AngularLike
from ..neurons import Selector, matches, neuron_layers
from .core import Operator
from .kinds import obstacle, operator_class, plain_class
from .magnitudes import MagnitudeLike


@dataclass
class Conversion:
    """What was changed, what was not and why, by the modules' names; prints as a table.

    ``new_parameters`` names what the magnitudes and angles learn: an optimizer made before does not have them.
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
    layers: Iterable[Selector] | None = None,
    skip: Iterable[Selector] = (),
) -> Conversion:
    r"""Turn the Conv and Linear layers of any model into operators f = h·g(θ), in place.

    Every module stays the object it was, with its parameters, hooks and names; only its class changes, so optimizers,
    ``state_dict`` files of the plain network and references go on working. ``layers`` and ``skip`` select by name or
    pattern, type, module or predicate (see :func:`hypersphere.neurons.neuron_layers`). ``magnitude`` defaults to
    Sphere, ``angular`` to Cosine; what they learn is each layer's own. :func:`restore` is the way back.

    >>> net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(32, 10))
    >>> print(convert(net, skip=["3"]))
    0  converted  Conv2d as Sphere × Cosine
    3  skipped    named in skip
    """
    layers, skip = None if layers is None else list(layers), list(skip)
    selected = neuron_layers(model, types=(nn.Module,), only=layers, skip=skip)
    report = Conversion()
    for name, module in _holders(model).items():
        if name not in selected:
            by_skip = any(matches(name, module, s) for s in skip)
            report.skipped[name] = "named in skip" if by_skip else "not among layers"
        elif reason := obstacle(model, name):
            report.skipped[name] = reason
        else:
            kind = type(module).__name__
            _become(module, magnitude, angular)
            assert isinstance(module, Operator)
            report.converted[name] = f"{kind} as {type(module.magnitude).__name__} × {type(module.angular).__name__}"
            own = (("magnitude", module.magnitude), ("angular", module.angular))
            report.new_parameters += [
                ".".join(filter(None, (name, slot, p))) for slot, m in own for p, _ in m.named_parameters()
            ]
    if not report.converted:
        raise ValueError(f"no layer of {type(model).__name__} was converted:\n{report}")
    _leave_the_fast_path(model)
    return report


def restore(model: nn.Module) -> Conversion:
    r"""Turn every Conv and Linear operator of a model back into the plain layer, with the weights it has now, in place.

    >>> layer = torch.nn.Linear(3, 4)
    >>> _ = convert(layer)
    >>> print(restore(layer), type(layer).__name__)
    (the model)  converted  Linear Linear
    """
    report = Conversion()
    for name, module in model.named_modules():
        if isinstance(module, Operator):
            if (plain := plain_class(module)) is None:
                report.skipped[name] = "its weight is parametrized: remove the parametrization first"
                continue
            module.__class__ = plain  # type: ignore[assignment]
            del module.magnitude, module.angular
            report.converted[name] = plain.__name__
    _return_to_the_fast_path(model)
    return report


def _holders(model: nn.Module) -> dict[str, nn.Module]:
    """The modules with a weight of two or more axes, or one whose size is not known yet."""
    found = {name: (module, getattr(module, "weight", None)) for name, module in model.named_modules()}
    return {
        name: module
        for name, (module, weight) in found.items()
        if isinstance(weight, Tensor) and (isinstance(weight, UninitializedParameter) or weight.ndim >= 2)
    }


def _become(module: nn.Module, magnitude: MagnitudeLike | None, angular: AngularLike | None) -> None:
    plain, cls = type(module), operator_class(module)
    assert cls is not None
    module.__class__ = cls
    try:
        cls.decouple(module, magnitude, angular)  # type: ignore[arg-type]
    except ValueError:
        module.__class__ = plain
        raise


# In evaluation torch's transformer encoder hands the weights of its Linear layers to one fused kernel, without calling
# the layers. It does so only under these settings of its own.
_FAST_PATH = {
    nn.TransformerEncoderLayer: ("activation_relu_or_gelu", 0),
    nn.TransformerEncoder: ("use_nested_tensor", False),
}


def _leave_the_fast_path(model: nn.Module) -> None:
    for module in model.modules():
        for kind, (setting, off) in _FAST_PATH.items():
            if isinstance(module, kind) and any(isinstance(child, Operator) for child in module.modules()):
                module.__dict__.setdefault("_fast_path", getattr(module, setting))
                setattr(module, setting, off)


def _return_to_the_fast_path(model: nn.Module) -> None:
    for module in model.modules():
        for kind, (setting, _) in _FAST_PATH.items():
            if isinstance(module, kind) and not any(isinstance(child, Operator) for child in module.modules()):
                setattr(module, setting, module.__dict__.pop("_fast_path", getattr(module, setting)))
