"""Which weights of a model fine-tuning reaches and how, and why it leaves the others as they are."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch.nn.utils import parametrize

from ...neurons import NeuronWeight, Selector, check_selectors, matches, neuron_weights
from ..coverage import ClassifierLike, find_classifier
from ..reparametrization import find
from .int8 import Int8Linear, is_quantized
from .tuning_method import TuningMethod


@dataclass(frozen=True)
class TunedPlace:
    """A weight that can be turned: its layer and parameter, how its neurons lie, and a tensor for device and precision."""

    name: str
    module: nn.Module
    parameter: str
    shape: tuple[int, int]
    parts: int
    groups: int
    transposed: bool
    like: Tensor

    def __str__(self) -> str:
        return f"{type(self.module).__name__}, {self.shape[0]} neurons of {self.shape[1]} numbers"


@dataclass
class TuningPlan:
    """What fine-tuning reaches and what it leaves out with the reason, by the names of weights; prints as a table.

    ``unsupported`` names the entries of ``left_out`` that nobody asked to leave out. ``classifier`` is the module that
    is trained as usual, if there is one.

    >>> plan = tuning_plan(torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2)))
    >>> plan.classifier, str(plan.adapted["0"])
    ('2', 'Linear, 6 neurons of 4 numbers')
    """

    method: TuningMethod
    adapted: dict[str, TunedPlace] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    unsupported: list[str] = field(default_factory=list)
    classifier: str | None = None

    def __str__(self) -> str:
        rows = [
            (name or "(the model)", "tuned", f"{place}; {self.method.fitted(place.shape[1])}")
            for name, place in self.adapted.items()
        ]
        rows += [(name or "(the model)", "left out", reason) for name, reason in self.left_out.items()]
        width = max((len(name) for name, _, _ in rows), default=0)
        return "\n".join(f"{name:<{width}}  {what:<8}  {text}" for name, what, text in rows)


def tuning_plan(
    model: nn.Module,
    method: TuningMethod | None = None,
    *,
    only: Iterable[Selector] | None = None,
    skip: Iterable[Selector] = (),
    classifier: ClassifierLike = None,
    train: Iterable[Selector] = (),
) -> TuningPlan:
    """Every matrix of a model: tuned by :func:`finetune` with these arguments, or left out and why; nothing is changed.

    Args:
        model: whose weights are looked at.
        method: the kind of rotation, which must fit; None is OFT with blocks of 32.
        only: layers to choose, by name or pattern, type, module or predicate ``(name, module) → bool``; None for all.
        skip: layers to leave out, chosen in the same ways.
        classifier: the layer that is trained as usual, by name or as a module; False if there is none.
        train: modules that are trained as usual.

    Returns:
        The :class:`TuningPlan`. Raises ``ValueError`` for a name that no module has, and for a weight that is named in
        ``only`` itself but cannot be tuned.

    >>> net = torch.nn.Sequential(torch.nn.Embedding(9, 4), torch.nn.Linear(4, 6), torch.nn.Linear(6, 2))
    >>> print(tuning_plan(net))
    1  tuned     Linear, 6 neurons of 4 numbers; block 4
    0  left out  an Embedding is a table: no input meets its rows
    2  left out  taken for the classifier, which is trained as usual; classifier=False includes it
    """
    only, skip, train = None if only is None else list(only), list(skip), list(train)
    plan = TuningPlan(method or TuningMethod())
    plan.classifier, why = find_classifier(model, classifier)
    tied = _tied(model)
    if classifier is None and plan.classifier is not None:
        held = model.get_submodule(plan.classifier)._parameters.values()
        if any(len(tied[id(p)]) > 1 for p in held if p is not None):  # to train it would be to train its twin
            plan.classifier = None
    found, others = _matrices(model)
    modules = dict(model.named_modules())
    check_selectors(type(model).__name__, [*modules, *found, *others], [*(only or []), *skip])
    for label in _ordered([*found, *others], modules):
        owner = label if label in modules else label.rpartition(".")[0]
        module = modules[owner]

        def chosen(selectors: Iterable[Selector], label: str = label, module: nn.Module = module) -> bool:
            names = {label, label if label in modules else label.rpartition(".")[0]}
            return any(matches(name, module, s) for s in selectors for name in names)

        if chosen(skip):
            plan.left_out[label] = "named in skip"
        elif plan.classifier is not None and owner == plan.classifier:
            plan.left_out[label] = why
        elif _inside(owner, module, modules, train):
            plan.left_out[label] = "named in train, so it is trained as usual"
        elif only is not None and not chosen(only):
            plan.left_out[label] = "not named in only"
        elif reason := others[label] if label in others else _misfit(found[label], tied, plan.method):
            plan.left_out[label] = reason
            if any(s == label or s is module for s in only or []):
                raise ValueError(f"{label!r} is named in only but cannot be tuned: {plan.left_out[label]}")
            if not isinstance(module, nn.Embedding | nn.EmbeddingBag):
                plan.unsupported.append(label)
        else:
            plan.adapted[label] = _place(label, found[label])
    return plan


def _matrices(model: nn.Module) -> tuple[dict[str, NeuronWeight], dict[str, str]]:
    """Weights of neurons, those of quantized layers included, and other matrices with the reason."""
    found, others = neuron_weights(model)
    quantized = {name: NeuronWeight(m) for name, m in model.named_modules() if is_quantized(m)}
    for name in quantized:
        others.pop(f"{name}.weight".lstrip("."), None)
    return {**found, **quantized}, others


def _ordered(labels: list[str], modules: dict[str, nn.Module]) -> list[str]:
    """Labels in the order of their modules."""
    order = {name: i for i, name in enumerate(modules)}
    return sorted(labels, key=lambda label: order[label if label in order else label.rpartition(".")[0]])


def _misfit(held: NeuronWeight, tied: dict[int, list[str]], method: TuningMethod) -> str | None:
    """Why this weight cannot be turned, or None; a rotation that is there already is an error."""
    module = held.module
    if find(module, held.parameter) is not None or "tuning" in module._modules:
        raise ValueError(f"a {type(module).__name__} has a rotation already: merge(model) first, then add a new one")
    if is_quantized(module):
        if method.name == "poet":
            return "POET multiplies R into the weight, and this one is quantized"
        return method.misfit(int(module.in_features))  # type: ignore[arg-type]
    weight = module._parameters.get(held.parameter)
    if isinstance(weight, UninitializedParameter):
        return "its weight has no shape yet: run one batch through the model first"
    if parametrize.is_parametrized(module, held.parameter) or not isinstance(weight, nn.Parameter):
        return "its weight is computed from something else"
    if len(names := tied.get(id(weight), [])) > 1:
        return f"its weight is tied ({', '.join(names)}): one R cannot serve both, untie it"
    if not weight.is_floating_point():
        return f"its weight is {weight.dtype}, which is not among the layers that this method knows"
    return method.misfit(weight.shape[0] if held.transposed else weight[0].numel())


def _place(label: str, held: NeuronWeight) -> TunedPlace:
    module = held.module
    if is_quantized(module):
        shape = (int(module.out_features), int(module.in_features))  # type: ignore[arg-type]
        like = module.scale if isinstance(module, Int8Linear) else Tensor()  # torch's kind is for the CPU only
        return TunedPlace(label, module, "weight", shape, 1, 1, False, like)
    weight: Tensor = getattr(module, held.parameter).detach()
    shape = (weight.shape[1], weight.shape[0]) if held.transposed else (weight.shape[0], weight[0].numel())
    # the three projections of an attention are as many layers; the groups of a convolution share one R, as in OPT
    parts = held.groups if isinstance(module, nn.MultiheadAttention) else 1
    return TunedPlace(label, module, held.parameter, shape, parts, held.groups, held.transposed, weight)


def _inside(owner: str, module: nn.Module, modules: dict[str, nn.Module], train: list[Selector]) -> bool:
    parts = owner.split(".") if owner else []
    around = [".".join(parts[:depth]) for depth in range(len(parts) + 1)]
    return any(matches(name, modules[name], s) for name in around for s in train)


def _tied(model: nn.Module) -> dict[int, list[str]]:
    """The names under which every parameter is held, by its id."""
    owners: dict[int, list[str]] = {}
    for name, module in model.named_modules():
        for key, parameter in module._parameters.items():
            if parameter is not None:
                owners.setdefault(id(parameter), []).append(f"{name}.{key}".lstrip("."))
    return owners
