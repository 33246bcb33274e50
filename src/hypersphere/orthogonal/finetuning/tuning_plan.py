"""Selection of the weights that fine-tuning changes, with a reason for every weight that stays frozen."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch.nn.utils import parametrize

from ...neurons import (
    ChangeReport,
    NeuronWeight,
    Selector,
    Selectors,
    as_selectors,
    check_selectors,
    matches,
    neuron_weights,
)
from ..layer_selection import ClassifierLike, find_classifier, find_parameter_owners
from ..parametrization import ADAPTER_CHILD, find_parametrization
from .quantized_linear import QuantizedLinear, is_quantized
from .tuning_method import TuningMethod
from .weight_change import WeightLayout


@dataclass(frozen=True)
class TunedWeight:
    """A weight that can be tuned: its layer and parameter, the layout of its neurons, and a tensor for device and dtype."""

    name: str
    module: nn.Module
    parameter: str
    layout: WeightLayout
    transposed: bool
    like: Tensor

    def __str__(self) -> str:
        return f"{type(self.module).__name__}, {self.layout.neurons} neurons of {self.layout.numbers} numbers"


@dataclass
class TuningPlan:
    """The weights to tune by name, the module that is trained as usual, and the report on every matrix."""

    weights: dict[str, TunedWeight] = field(default_factory=dict)
    classifier: str | None = None
    report: ChangeReport = field(default_factory=ChangeReport)


def plan_finetune(
    model: nn.Module,
    method: TuningMethod | None = None,
    *,
    only: Selectors | None = None,
    skip: Selectors = (),
    classifier: ClassifierLike = None,
    train: Selectors = (),
) -> ChangeReport:
    """Report which weights :func:`finetune` would change with these arguments, without changing the model.

    Args:
        model: The model, which is not changed.
        method: The method, which must fit the layers. None is OFT with blocks of 32.
        only: Layers to tune: names or patterns, types, modules or predicates ``(name, module) → bool``, one or several.
            None means all.
        skip: Layers that stay frozen, selected in the same ways.
        classifier: The layer that is trained as usual, by name or as a module; False if there is none.
        train: Modules that are trained as usual.

    Returns:
        A report that lists every matrix as changed or skipped.

    Raises:
        ValueError: If a name matches no module, or if a weight that ``only`` names cannot be tuned.

    >>> net = torch.nn.Sequential(torch.nn.Embedding(9, 4), torch.nn.Linear(4, 6), torch.nn.Linear(6, 2))
    >>> print(plan_finetune(net))
    1  changed  Linear, 6 neurons of 4 numbers; block 4
    0  skipped  an Embedding is a table: its rows are looked up, not multiplied
    2  skipped  taken for the classifier, which is trained as usual; classifier=False includes it
    """
    return select_weights(model, method or TuningMethod(), only, skip, classifier, train).report


def select_weights(
    model: nn.Module,
    method: TuningMethod,
    only: Selectors | None,
    skip: Selectors,
    classifier: ClassifierLike,
    train: Selectors,
) -> TuningPlan:
    """Select the weights to tune; the arguments are those of :func:`plan_finetune`."""
    only, skip, train = None if only is None else as_selectors(only), as_selectors(skip), as_selectors(train)
    plan = TuningPlan()
    report = plan.report
    plan.classifier, classifier_reason = find_classifier(model, classifier)
    owners = find_parameter_owners(model)
    if classifier is None and plan.classifier is not None:
        held = model.get_submodule(plan.classifier)._parameters.values()
        if any(
            len(owners[id(p)]) > 1 for p in held if p is not None
        ):  # training it would also change the layer with the tied weight
            plan.classifier = None
    weights, others = _find_matrices(model)
    modules = dict(model.named_modules())
    check_selectors(type(model).__name__, [*modules, *weights, *others], [*(only or []), *skip])
    for label in _sort_labels([*weights, *others], modules):
        owner = label if label in modules else label.rpartition(".")[0]
        module = modules[owner]

        def is_selected(
            selectors: Iterable[Selector], names: tuple[str, str] = (label, owner), module: nn.Module = module
        ) -> bool:
            return any(matches(name, module, s) for s in selectors for name in names)

        if is_selected(skip):
            report.skipped[label] = "named in skip"
        elif plan.classifier is not None and owner == plan.classifier:
            report.skipped[label] = classifier_reason
        elif _is_inside(owner, modules, train):
            report.skipped[label] = "named in train, so it is trained as usual"
        elif only is not None and not is_selected(only):
            report.skipped[label] = "not named in only"
        elif reason := others[label] if label in others else _explain_misfit(weights[label], owners, method):
            report.skipped[label] = reason
            if any(s == label or s is module for s in only or []):
                raise ValueError(f"{label!r} is named in only but cannot be tuned: {reason}")
            if not isinstance(module, nn.Embedding | nn.EmbeddingBag):
                report.unsupported.append(label)
        else:
            weight = describe_weight(label, weights[label])
            plan.weights[label] = weight
            report.changed[label] = f"{weight}; {method.describe(weight.layout.numbers)}"
    return plan


def _find_matrices(model: nn.Module) -> tuple[dict[str, NeuronWeight], dict[str, str]]:
    """Find the weights of neurons, including quantized ones, and the other matrices with the reason to skip them."""
    weights, others = neuron_weights(model)
    quantized = {name: NeuronWeight(m) for name, m in model.named_modules() if is_quantized(m)}
    for name in quantized:
        others.pop(f"{name}.weight".lstrip("."), None)
    return {**weights, **quantized}, others


def _sort_labels(labels: list[str], modules: dict[str, nn.Module]) -> list[str]:
    """Sort labels in the order of their modules."""
    order = {name: i for i, name in enumerate(modules)}
    return sorted(labels, key=lambda label: order[label if label in order else label.rpartition(".")[0]])


def _explain_misfit(held: NeuronWeight, owners: dict[int, list[str]], method: TuningMethod) -> str | None:
    """Return why this weight cannot be tuned, or None; raise a ValueError if it has a rotation already."""
    module = held.module
    if find_parametrization(module, held.parameter) is not None or ADAPTER_CHILD in module._modules:
        raise ValueError(f"a {type(module).__name__} has a rotation already: merge(model) first, then add a new one")
    if is_quantized(module):
        reason = method.kind.change.explain_quantized(method)
        return reason or method.explain_misfit(int(module.in_features))  # type: ignore[arg-type]
    weight = module._parameters.get(held.parameter)
    if isinstance(weight, UninitializedParameter):
        return "its weight has no shape yet: run one batch through the model first"
    if parametrize.is_parametrized(module, held.parameter) or not isinstance(weight, nn.Parameter):
        return "its weight is computed from something else"
    if len(names := owners.get(id(weight), [])) > 1:
        return f"its weight is tied ({', '.join(names)}): one R cannot serve both, untie it"
    if not weight.is_floating_point():
        return f"its weight has the dtype {weight.dtype}, which this method does not support"
    return method.explain_misfit(weight.shape[0] if held.transposed else weight[0].numel())


def describe_weight(label: str, held: NeuronWeight) -> TunedWeight:
    """Return the layer, the parameter and the layout of a weight."""
    module = held.module
    if is_quantized(module):
        shape = (int(module.out_features), int(module.in_features))  # type: ignore[arg-type]
        like = (
            module.scale if isinstance(module, QuantizedLinear) else Tensor()
        )  # the quantized layer of torch runs only on CPUs
        return TunedWeight(label, module, "weight", WeightLayout(*shape), False, like)
    weight: Tensor = getattr(module, held.parameter).detach()
    shape = (weight.shape[1], weight.shape[0]) if held.transposed else (weight.shape[0], weight[0].numel())
    # The three projections of an attention are tuned separately. The groups of a convolution share one R, as in orthogonal
    # training.
    parts = held.groups if isinstance(module, nn.MultiheadAttention) else 1
    return TunedWeight(label, module, held.parameter, WeightLayout(*shape, parts, held.groups), held.transposed, weight)


def _is_inside(owner: str, modules: dict[str, nn.Module], train: list[Selector]) -> bool:
    """Return whether ``train`` selects a module or one that contains it."""
    parts = owner.split(".") if owner else []
    ancestors = [".".join(parts[:depth]) for depth in range(len(parts) + 1)]
    return any(matches(name, modules[name], s) for name in ancestors for s in train)
