"""Find the layers of a network that have neurons, and its classification layer, for conversion, energy and orthogonal training.

A neuron is a row of a weight ``(neurons, …)``, flattened to ``(neurons, dim)``.
"""

import fnmatch
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from jaxtyping import Float
from torch import Tensor, nn

from .collectives import gather_weight, is_sharded

Selector: TypeAlias = str | type[nn.Module] | nn.Module | Callable[[str, nn.Module], bool]
# One selector or several. A single name is included, because a string is an iterable of strings.
Selectors: TypeAlias = Iterable[Selector] | type[nn.Module] | nn.Module | Callable[[str, nn.Module], bool]
NEURON_LAYERS: tuple[type[nn.Module], ...] = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_REPORT_ATTRIBUTE = "_change_report"  # attribute of a model that holds the report of its last change


class Classifier(nn.Module):
    """A layer that classifies features by the rows of a weight: the base class of all heads.

    Energy, over-parameterization and training find a head by this class. ``weight`` has one row per class, or
    ``sub_centers`` consecutive rows per class.

    >>> class Cosine(Classifier):
    ...     def __init__(self, dim, num_classes):
    ...         super().__init__()
    ...         self.weight, self.num_classes = torch.nn.Parameter(torch.randn(num_classes, dim)), num_classes
    >>> output_layer(torch.nn.Sequential(torch.nn.Linear(4, 8), Cosine(8, 3)))
    '1'
    """

    weight: Tensor
    num_classes: int
    sub_centers: int = 1


@dataclass(frozen=True)
class NeuronWeight:
    """The neurons of one layer: a parameter of a module, divided into groups of neurons with the same inputs.

    The weight is read from the module when it is needed, so a parametrized weight is the one used in the forward pass.

    Args:
        module: The layer.
        parameter: The name of the weight in the module.
        groups: Number of groups.
        transposed: Whether the neurons are the columns of the weight, as in the Conv1D of transformers.

    >>> layer = NeuronWeight(torch.nn.Conv2d(4, 6, 3, groups=2), groups=2)
    >>> layer.rows().shape, layer.stored() is layer.module.weight
    (torch.Size([2, 3, 18]), True)
    """

    module: nn.Module
    parameter: str = "weight"
    groups: int = 1
    transposed: bool = False

    def stored(self) -> nn.Parameter | None:
        """Return the parameter itself, which identifies tied layers; None if the weight is computed."""
        return self.module._parameters.get(self.parameter)

    def is_sharded(self) -> bool:
        """Return whether each process holds only some of the neurons, as in a sharded head."""
        return is_sharded(getattr(self.module, self.parameter))

    def rows(self) -> Float[Tensor, "groups neurons dim"]:
        """Return the current neurons. If the weight is sharded, all processes must call this, and each gets all neurons."""
        weight: Tensor = getattr(self.module, self.parameter)
        weight = gather_weight(weight) if is_sharded(weight) else weight
        rows = weight.mT if self.transposed else weight
        return rows.flatten(1).unflatten(0, (self.groups, -1))


def neurons(module: nn.Module) -> Float[Tensor, "neurons dim"]:
    """Return the rows of a layer's weight as used in the forward pass, after any parametrization.

    >>> neurons(torch.nn.Conv2d(3, 8, 5)).shape
    torch.Size([8, 75])
    """
    weight = module.weight
    if not isinstance(weight, Tensor) or weight.ndim < 2:
        raise ValueError(f"a layer with neurons has a weight of two or more dimensions, got {type(module).__name__}")
    return NeuronWeight(module, transposed=has_transposed_weight(module)).rows().flatten(0, 1)


def neuron_layers(
    model: nn.Module,
    *,
    types: tuple[type[nn.Module], ...] = NEURON_LAYERS,
    only: Selectors | None = None,
    skip: Selectors = (),
) -> dict[str, nn.Module]:
    """Return the Linear and Conv layers of a model by name, in the order of registration, each module once.

    Args:
        model: The network.
        types: The types of layers to list.
        only: The layers to list: names or patterns such as ``"layer1.*"``, types, modules, or predicates
            ``(name, module) → bool``. None means all.
        skip: The layers to leave out, given in the same way.

    Raises:
        ValueError: If a name or pattern matches no module.

    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> list(neuron_layers(net)), list(neuron_layers(net, skip=["2"]))
    (['0', '2'], ['0'])
    """
    only, skip = None if only is None else as_selectors(only), as_selectors(skip)
    check_selectors(type(model).__name__, [name for name, _ in model.named_modules()], [*(only or []), *skip])
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, types)
        and (only is None or any(matches(name, module, s) for s in only))
        and not any(matches(name, module, s) for s in skip)
    }


def neuron_weights(model: nn.Module) -> tuple[dict[str, NeuronWeight], dict[str, str]]:
    """Return the weights of a model that have neurons, and the reasons why other matrices have none.

    The projections of ``nn.MultiheadAttention`` are named after their parameters; all other weights are named after their
    modules. Fused projections of queries, keys and values are three groups of neurons; layers called ``c_attn`` (GPT-2) and
    ``qkv`` are recognized as such. Heads (:class:`Classifier`) are included. A weight that several layers share appears once,
    under the first name. The other names, and an embedding table that shares it, are among the reasons.

    Args:
        model: The network.

    Returns:
        The weights by name, and the reasons by name.

    >>> weights, others = neuron_weights(torch.nn.Sequential(torch.nn.Embedding(9, 4), torch.nn.MultiheadAttention(4, 2)))
    >>> list(weights), others
    (['1.in_proj_weight', '1.out_proj'], {'0': 'an Embedding is a table: its rows are looked up, not multiplied'})
    """
    weights: dict[str, NeuronWeight] = {}
    others: dict[str, str] = {}
    for name, module in model.named_modules():
        dot = f"{name}." if name else ""
        if isinstance(module, NEURON_LAYERS) or isinstance(module, Classifier):  # noqa: SIM101 (with one tuple, mypy loses the type)
            groups = 3 if _is_fused_projection(name, module) else getattr(module, "groups", 1)
            weights[name] = NeuronWeight(module, groups=groups)
        elif has_transposed_weight(module):
            groups = 3 if _is_fused_projection(name, module) else 1
            weights[name] = NeuronWeight(module, groups=groups, transposed=True)
        elif isinstance(module, nn.MultiheadAttention):
            for parameter in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
                if getattr(module, parameter) is not None:
                    groups = 3 if parameter == "in_proj_weight" else 1
                    weights[f"{dot}{parameter}"] = NeuronWeight(module, parameter, groups)
        elif isinstance(module, nn.Embedding | nn.EmbeddingBag):
            others[name] = f"an {type(module).__name__} is a table: its rows are looked up, not multiplied"
        elif "parametrizations" not in name.split("."):
            for parameter, value in module.named_parameters(recurse=False):
                if value.ndim >= 2:
                    others[f"{dot}{parameter}"] = f"a {type(module).__name__} is not a known layer of neurons"
    return _remove_tied(model, weights, others)


def _is_fused_projection(name: str, module: nn.Module) -> bool:
    """Return whether a layer computes queries, keys and values at once, according to its name and its shape."""
    weight = module.weight
    assert isinstance(weight, Tensor)
    if nn.parameter.is_lazy(weight):
        return False
    outputs, inputs = weight.shape[::-1] if has_transposed_weight(module) else weight.shape[:2]
    return name.rpartition(".")[2] in ("c_attn", "qkv") and weight.ndim == 2 and outputs == 3 * inputs


def _remove_tied(
    model: nn.Module, weights: dict[str, NeuronWeight], others: dict[str, str]
) -> tuple[dict[str, NeuronWeight], dict[str, str]]:
    """Keep only the first name of a weight that several layers share, and add a reason for its other names."""
    first: dict[int, str] = {}
    for name, layer in list(weights.items()):
        parameter = layer.stored()
        if parameter is not None and first.setdefault(id(parameter), name) != name:
            others[name] = f"its weight is tied to that of {first[id(parameter)]}"
            del weights[name]
    for name, module in model.named_modules():
        owner = first.get(id(module._parameters.get("weight")))
        if owner is not None and isinstance(module, nn.Embedding | nn.EmbeddingBag):
            others[name] += f"; its weight is tied to that of {owner}"
    return weights, others


def output_layer(model: nn.Module) -> str | None:
    """Return the name of the classification layer, or None for a network whose output is a feature.

    It is the last :class:`Classifier` if there is one, otherwise the attribute ``classifier`` of the model if it has a weight
    matrix, otherwise the last registered layer if it is Linear. A network whose attribute ``classifier`` is None, such as a
    network of ``hypersphere.models`` without classes, has no classification layer.

    >>> output_layer(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 3)))
    '1'
    """
    modules = dict(model.named_modules())
    heads = [name for name, module in modules.items() if isinstance(module, Classifier)]
    if heads:
        return heads[-1]
    weight = getattr(getattr(model, "classifier", None), "weight", None)
    if isinstance(weight, Tensor) and weight.ndim == 2:
        return "classifier"
    layers = [name for name, m in modules.items() if isinstance(m, NEURON_LAYERS) or has_transposed_weight(m)]
    if not layers or not isinstance(modules[layers[-1]], nn.Linear):
        return None
    parts = layers[-1].split(".") if layers[-1] else []
    ancestors = [modules[".".join(parts[:depth])] for depth in range(len(parts) + 1)]
    is_feature_layer = any(
        isinstance(m, nn.MultiheadAttention) or getattr(m, "classifier", m) is None for m in ancestors
    )
    return None if is_feature_layer else layers[-1]


def has_transposed_weight(module: nn.Module) -> bool:
    """Return whether a layer's weight has the shape (inputs, neurons), as in the Conv1D of transformers.

    The layer is recognized by the name of its class and the attribute ``nf``.

    >>> class Conv1D(torch.nn.Module):  # that of transformers: ``nf`` outputs
    ...     nf = 6
    >>> has_transposed_weight(Conv1D()), has_transposed_weight(torch.nn.Linear(4, 6))
    (True, False)
    """
    return any(kind.__name__ == "Conv1D" for kind in type(module).__mro__) and hasattr(module, "nf")


def matches(name: str, module: nn.Module, selector: Selector) -> bool:
    """Return whether a selector matches this module.

    >>> layer = torch.nn.Linear(4, 3)
    >>> matches("layer1.0", layer, "layer1.*"), matches("layer1.0", layer, torch.nn.Conv2d), matches("fc", layer, layer)
    (True, False, True)
    """
    if isinstance(selector, str):
        return fnmatch.fnmatchcase(name, selector)
    if isinstance(selector, type):
        return isinstance(module, selector)
    if isinstance(selector, nn.Module):
        return module is selector
    return bool(selector(name, module))


def check_selectors(owner: str, names: Iterable[str], selectors: Iterable[Selector]) -> None:
    """Check that each name or pattern among the selectors matches a module.

    Args:
        owner: Name of the model, for the error message.
        names: The names of all modules.
        selectors: The selectors. Types, modules and predicates are not checked.

    Raises:
        ValueError: If a name or pattern matches none of ``names``.

    >>> check_selectors("Net", ["conv", "fc"], ["conv", "f*", torch.nn.Linear])
    >>> check_selectors("Net", ["conv", "fc"], ["head"])
    Traceback (most recent call last):
    ValueError: no module of Net is called 'head'; its modules are conv, fc
    """
    names = list(names)
    for selector in selectors:
        if isinstance(selector, str) and not any(fnmatch.fnmatchcase(name, selector) for name in names):
            known = ", ".join(filter(None, names))
            raise ValueError(f"no module of {owner} is called {selector!r}; its modules are {known}")


def as_selectors(selectors: Selectors) -> list[Selector]:
    """Return one or several selectors as a list.

    >>> as_selectors("layer1.*"), as_selectors(["0", torch.nn.Linear])
    (['layer1.*'], ['0', <class 'torch.nn.modules.linear.Linear'>])
    """
    if isinstance(selectors, (str, type, nn.Module)) or callable(selectors):
        return [selectors]
    return list(selectors)


@dataclass
class ChangeReport:
    """The layers that a function changed, and those that it skipped with the reasons. It prints as a table.

    ``convert``, ``restore``, ``overparameterize``, ``finetune``, ``merge`` and ``unmerge`` return the model and store this
    report with it; :func:`get_change_report` returns it. Keys are names of layers, or of single weights in a layer with several
    weights.

    Attributes:
        changed: What each changed layer is now.
        skipped: The reason for each skipped layer.
        unsupported: The names in ``skipped`` of layers that the function does not support, as opposed to layers that the
            caller wanted to skip.
        new_parameters: Names of added parameters. An optimizer that already exists does not contain them.

    >>> report = ChangeReport({"0": "Linear with magnitude Sphere, angle Cosine"}, {"2": "named in skip"})
    >>> print(report)
    0  changed  Linear with magnitude Sphere, angle Cosine
    2  skipped  named in skip
    """

    changed: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    unsupported: list[str] = field(default_factory=list)
    new_parameters: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        rows = [(name or "(the model)", "changed", text) for name, text in self.changed.items()]
        rows += [(name or "(the model)", "skipped", text) for name, text in self.skipped.items()]
        rows += [(name, "new", "parameter to give to the optimizer") for name in self.new_parameters]
        width = max((len(name) for name, _, _ in rows), default=0)
        return "\n".join(f"{name:<{width}}  {what:<7}  {text}" for name, what, text in rows)


def get_change_report(model: nn.Module) -> ChangeReport:
    """Return the report of the last function that changed the layers of this model.

    Args:
        model: The model that was passed to ``convert``, ``restore``, ``overparameterize``, ``finetune``, ``merge`` or
            ``unmerge``.

    Returns:
        The layers that were changed, and those that were skipped with the reasons.

    Raises:
        ValueError: If none of these functions was called with this model.

    >>> net = hs.convert(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)), skip="2")
    >>> get_change_report(net).skipped
    {'2': 'named in skip'}
    """
    report = model.__dict__.get(_REPORT_ATTRIBUTE)
    if report is None:
        raise ValueError(
            f"this {type(model).__name__} has no change report: call convert, restore, overparameterize, finetune, merge "
            "or unmerge with it first"
        )
    assert isinstance(report, ChangeReport)
    return report


def attach_change_report(model: nn.Module, report: ChangeReport) -> None:
    """Store a report as a plain attribute of the model, which is copied and pickled with it.

    Args:
        model: The model that was changed.
        report: The report, which replaces an earlier one.

    >>> net = torch.nn.Linear(4, 2)
    >>> attach_change_report(net, ChangeReport({"": "Linear"}))
    >>> get_change_report(net).changed
    {'': 'Linear'}
    """
    model.__dict__[_REPORT_ATTRIBUTE] = report
