"""Selection of the layers that orthogonal training changes, with a reason for every skipped weight."""

from collections.abc import Iterable
from typing import TypeAlias

from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from ..neurons import (
    NEURON_LAYERS,
    ChangeReport,
    Classifier,
    Selectors,
    as_selectors,
    matches,
    neuron_layers,
    output_layer,
)

# bool instead of Literal[False], because settings would parse the latter as the name "false" on a command line
ClassifierLike: TypeAlias = str | nn.Module | bool | None


def plan_overparameterize(
    model: nn.Module,
    *,
    only: Selectors | None = None,
    skip: Selectors = (),
    classifier: ClassifierLike = None,
) -> ChangeReport:
    """Report which layers :func:`overparameterize` would change with these arguments, without changing the model.

    Args:
        model: The model, which is not changed.
        only: Layers to change: names or patterns, types, modules or predicates ``(name, module) → bool``, one or
            several. None means all.
        skip: Layers to leave unchanged, selected in the same ways.
        classifier: The classification layer, which is trained without R, by name or as a module; False if there is none.
            By default it is the last margin head, otherwise the last Linear layer unless that is the model itself.

    Returns:
        A report that lists every weight matrix as changed or skipped.

    Raises:
        ValueError: If a name matches no module.

    >>> net = torch.nn.Sequential(torch.nn.Embedding(9, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    >>> print(plan_overparameterize(net))
    1  changed  Linear
    0  skipped  the rows of an embedding are not neurons
    2  skipped  taken for the classifier, which is trained as usual; classifier=False includes it
    """
    return select_layers(model, only, skip, classifier)[1]


def select_layers(
    model: nn.Module,
    only: Selectors | None,
    skip: Selectors,
    classifier: ClassifierLike,
    types: tuple[type[nn.Module], ...] = NEURON_LAYERS,
) -> tuple[dict[str, nn.Module], ChangeReport]:
    """Return the selected layers of the given types by name, and a report on every weight matrix of the model."""
    only, skip = None if only is None else as_selectors(only), as_selectors(skip)
    head, reason = find_classifier(model, classifier)
    selected = neuron_layers(model, types=(nn.Module,), only=only, skip=skip)
    chosen: dict[str, nn.Module] = {}
    report = ChangeReport()
    for name, module in model.named_modules():
        for label, is_supported in _list_matrices(name, module, types):
            if any(matches(name, module, s) for s in skip):
                report.skipped[label] = "named in skip"
            elif name == head:
                report.skipped[label] = reason
            elif name not in selected:
                report.skipped[label] = "not named in only"
            elif isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
                report.skipped[label] = "the rows of an embedding are not neurons"
            elif not is_supported:
                report.skipped[label] = f"a {type(module).__name__} is not among the layers that this method knows"
                report.unsupported.append(label)
            else:
                chosen[name] = module
                report.changed[name] = type(module).__name__
    return chosen, report


def find_classifier(model: nn.Module, classifier: ClassifierLike) -> tuple[str | None, str]:
    """Return the name of the classification layer, or None, and the reason for skipping it."""
    reason = "the classifier, which is trained as usual"
    if classifier is False:
        return None, reason
    if classifier is None:
        name = output_layer(model) or None  # "" is the model itself, which is not its own classifier
        is_head = name is not None and isinstance(model.get_submodule(name), Classifier)
        return name, reason if is_head else f"taken for {reason}; classifier=False includes it"
    names = dict(model.named_modules())
    name = next((n for n, m in names.items() if n == classifier or m is classifier), None)
    if name is None:
        raise ValueError(
            f"classifier must be a module of {type(model).__name__}, the name of one or False, got {classifier!r}"
        )
    return name, reason


def find_parameter_owners(model: nn.Module) -> dict[int, list[str]]:
    """Return the names of every parameter by its id; a tied weight has several names."""
    owners: dict[int, list[str]] = {}
    for name, module in model.named_modules():
        for key, parameter in module._parameters.items():
            if parameter is not None:
                owners.setdefault(id(parameter), []).append(f"{name}.{key}".lstrip("."))
    return owners


def _list_matrices(name: str, module: nn.Module, types: tuple[type[nn.Module], ...]) -> Iterable[tuple[str, bool]]:
    """List the matrices that a module holds directly, with a label and whether the type of the layer is supported."""
    if "parametrizations" in name.split("."):  # a parametrization is reported with its layer
        return []
    if isinstance(module, types) or isinstance(getattr(module, "weight", None), UninitializedParameter):
        return [(name, isinstance(module, types))]
    keys = [key for key, p in module._parameters.items() if isinstance(p, Tensor) and p.ndim >= 2]
    return [(name if key == "weight" else f"{name}.{key}".lstrip("."), False) for key in keys]
