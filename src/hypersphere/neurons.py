"""Which modules of a network hold neurons and which one classifies: shared by conversion, energy and over-parameterization.

A neuron is a row of a weight: ``(neurons, …)``, flattened to ``(neurons, dim)``.
"""

import fnmatch
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from jaxtyping import Float
from torch import Tensor, nn

from .collectives import gather_weight, is_sharded

Selector: TypeAlias = str | type[nn.Module] | nn.Module | Callable[[str, nn.Module], bool]
# One selector or several. A single name needs no member of its own, because a string is an iterable of strings.
Selectors: TypeAlias = Iterable[Selector] | type[nn.Module] | nn.Module | Callable[[str, nn.Module], bool]
NEURON_LAYERS: tuple[type[nn.Module], ...] = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_REPORT = "_change_report"  # attribute of a model that holds the report of its last change


class Classifier(nn.Module):
    """What classifies a feature by rows of a weight: the base of every head.

    Energy, over-parameterization and training find a head by this class. ``weight`` has one row, or ``sub_centers``
    rows that follow each other, for each of ``num_classes`` classes.

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
    """Where the neurons of one layer are: a parameter of a module, in groups that see the same inputs.

    The module is looked at, so that a parametrized weight is the one that acts in the forward pass. ``transposed``
    says that the neurons are the columns, as in the Conv1D of transformers.

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
        """Return the current neurons. If each process holds some, all processes must call this and get all of them."""
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

    ``only`` and ``skip`` take names (``"layer1.*"`` patterns as well), types, module objects or predicates
    ``(name, module) → bool``. A name or pattern that matches nothing is an error, not a silent no-op.

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
    """Return every weight of a model that holds neurons, by name, and the reason for every other matrix.

    Layers go by their module's name, the query, key and value projections of ``nn.MultiheadAttention`` by their
    parameter's, as three groups of neurons; so are the fused projections called ``c_attn`` in GPT-2 and ``qkv``. Heads
    (:class:`Classifier`) are included. A weight that several layers share (tied) is found once, under the first of their
    names; the others, and a table that is tied to a layer, are named with the layer that has their weight.

    >>> found, others = neuron_weights(torch.nn.Sequential(torch.nn.Embedding(9, 4), torch.nn.MultiheadAttention(4, 2)))
    >>> list(found), others
    (['1.in_proj_weight', '1.out_proj'], {'0': 'an Embedding is a table: its rows are looked up, not multiplied'})
    """
    found: dict[str, NeuronWeight] = {}
    others: dict[str, str] = {}
    for name, module in model.named_modules():
        dot = f"{name}." if name else ""
        if isinstance(module, NEURON_LAYERS) or isinstance(module, Classifier):  # noqa: SIM101 (a tuple of types loses the type)
            found[name] = NeuronWeight(module, groups=3 if _fuses(name, module) else getattr(module, "groups", 1))
        elif has_transposed_weight(module):
            found[name] = NeuronWeight(module, groups=3 if _fuses(name, module) else 1, transposed=True)
        elif isinstance(module, nn.MultiheadAttention):
            for parameter in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
                if getattr(module, parameter) is not None:
                    groups = 3 if parameter == "in_proj_weight" else 1
                    found[f"{dot}{parameter}"] = NeuronWeight(module, parameter, groups)
        elif isinstance(module, nn.Embedding | nn.EmbeddingBag):
            others[name] = f"an {type(module).__name__} is a table: its rows are looked up, not multiplied"
        elif "parametrizations" not in name.split("."):
            for parameter, value in module.named_parameters(recurse=False):
                if value.ndim >= 2:
                    others[f"{dot}{parameter}"] = f"a {type(module).__name__} is no layer of neurons that is known here"
    return _each_once(model, found, others)


def _fuses(name: str, module: nn.Module) -> bool:
    """Return whether a layer computes queries, keys and values in three equal parts: by its name and its shape."""
    weight = module.weight
    assert isinstance(weight, Tensor)
    if nn.parameter.is_lazy(weight):
        return False
    outputs, inputs = weight.shape[::-1] if has_transposed_weight(module) else weight.shape[:2]
    return name.rpartition(".")[2] in ("c_attn", "qkv") and weight.ndim == 2 and outputs == 3 * inputs


def _each_once(
    model: nn.Module, found: dict[str, NeuronWeight], others: dict[str, str]
) -> tuple[dict[str, NeuronWeight], dict[str, str]]:
    """Return the weights with every tied weight under one name, and the other names of each."""
    first: dict[int, str] = {}
    for name, layer in list(found.items()):
        parameter = layer.stored()
        if parameter is not None and first.setdefault(id(parameter), name) != name:
            others[name] = f"its weight is tied to that of {first[id(parameter)]}"
            del found[name]
    for name, module in model.named_modules():
        owner = first.get(id(module._parameters.get("weight")))
        if owner is not None and isinstance(module, nn.Embedding | nn.EmbeddingBag):
            others[name] += f"; its weight is tied to that of {owner}"
    return found, others


def output_layer(model: nn.Module) -> str | None:
    """Return the name of the classification layer, or None for a network that ends in features.

    It is the last :class:`Classifier`; else the model's own attribute ``classifier``, if that has a matrix of weights;
    else the last layer in order of registration, if it is Linear. A network whose ``classifier`` is None, as those of
    ``hypersphere.models`` built without classes, says itself that it ends in features.

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
    around = [modules[".".join(parts[:depth])] for depth in range(len(parts) + 1)]
    features = any(isinstance(m, nn.MultiheadAttention) or getattr(m, "classifier", m) is None for m in around)
    return None if features else layers[-1]


def has_transposed_weight(module: nn.Module) -> bool:
    """Return whether a layer's weight is (inputs, neurons), as in Conv1D of transformers, which is recognized by its name.

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
    """Refuse a name or pattern that means nothing of what there is.

    Raises:
        ValueError: if a string among ``selectors`` matches none of ``names``; types, modules and predicates pass.

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
    """Return selectors as a list; a single name, type, module or predicate is a list of one.

    >>> as_selectors("layer1.*"), as_selectors(["0", torch.nn.Linear])
    (['layer1.*'], ['0', <class 'torch.nn.modules.linear.Linear'>])
    """
    if isinstance(selectors, (str, type, nn.Module)) or callable(selectors):
        return [selectors]
    return list(selectors)


@dataclass
class ChangeReport:
    """The layers that a function changed and those that it skipped, with the reasons; prints as a table.

    ``convert``, ``restore``, ``overparameterize``, ``finetune``, ``merge`` and ``unmerge`` return the model and leave
    this report with it, where :func:`get_change_report` finds it. Keys are names of layers, or of single weights in a layer
    that has several.

    Attributes:
        changed: what each changed layer is now.
        skipped: the reason for each skipped layer.
        unsupported: names in ``skipped`` that the caller did not ask to skip, because the function does not know the
            kind of layer.
        new_parameters: names of added parameters. An optimizer that was created before does not have them.

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
        model: the model that was given to ``convert``, ``restore``, ``overparameterize``, ``finetune``, ``merge`` or
            ``unmerge``.

    Returns:
        Which layers were changed, which were skipped and why.

    Raises:
        ValueError: if none of these functions was called with this model.

    >>> net = hs.convert(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)), skip="2")
    >>> get_change_report(net).skipped
    {'2': 'named in skip'}
    """
    report = model.__dict__.get(_REPORT)
    if report is None:
        raise ValueError(
            f"this {type(model).__name__} has no change report: call convert, restore, overparameterize, finetune, merge "
            "or unmerge with it first"
        )
    assert isinstance(report, ChangeReport)
    return report


def attach_change_report(model: nn.Module, report: ChangeReport) -> None:
    """Store a report with the model, as a plain attribute that is copied and pickled with it.

    Args:
        model: the model that was changed.
        report: which of its layers were changed; replaces an earlier report.

    >>> net = torch.nn.Linear(4, 2)
    >>> attach_change_report(net, ChangeReport({"": "Linear"}))
    >>> get_change_report(net).changed
    {'': 'Linear'}
    """
    model.__dict__[_REPORT] = report
