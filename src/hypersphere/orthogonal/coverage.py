"""Which weights of a model a method reaches, and why it leaves the others as they are."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from ..neurons import NEURON_LAYERS, Classifier, Selector, matches, neuron_layers, output_layer

ClassifierLike: TypeAlias = "str | nn.Module | Literal[False] | None"


@dataclass
class Coverage:
    """What a method reaches and what it leaves out with the reason, by the names of modules; prints as a table.

    ``unsupported`` names the entries of ``left_out`` that nobody asked to leave out: weights of a kind that the method
    does not know.

    >>> net = torch.nn.Sequential(torch.nn.Embedding(9, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    >>> found = coverage(net, classifier="2")
    >>> list(found.chosen), found.left_out["2"]
    (['1'], 'the classifier, which is trained as usual')
    """

    chosen: dict[str, nn.Module] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    unsupported: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        rows = [(name or "(the model)", "chosen", type(module).__name__) for name, module in self.chosen.items()]
        rows += [(name or "(the model)", "left out", reason) for name, reason in self.left_out.items()]
        width = max((len(name) for name, _, _ in rows), default=0)
        return "\n".join(f"{name:<{width}}  {what:<8}  {text}" for name, what, text in rows)


def coverage(
    model: nn.Module,
    *,
    only: Iterable[Selector] | None = None,
    skip: Iterable[Selector] = (),
    classifier: ClassifierLike = None,
    types: tuple[type[nn.Module], ...] = NEURON_LAYERS,
) -> Coverage:
    """Every weight matrix of a model: reached by :func:`overparameterize` with these arguments, or left out and why.

    Args:
        model: whose modules are looked at; nothing is changed.
        only: layers to choose, by name or pattern, type, module or predicate ``(name, module) → bool``; None for all.
        skip: layers to leave out, chosen in the same ways.
        classifier: the layer that classifies and is trained as usual, by name or as a module; False if there is none.
            By default it is the last margin head of the model, else its last Linear layer unless that is the model.
        types: the kinds of layers that the method knows.

    Returns:
        The :class:`Coverage`. Raises ``ValueError`` for a name that no module has.

    >>> net = torch.nn.Sequential(torch.nn.Embedding(9, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    >>> print(coverage(net))
    1  chosen    Linear
    0  left out  the rows of an embedding are not neurons
    2  left out  taken for the classifier, which is trained as usual; classifier=False includes it
    """
    only, skip = None if only is None else list(only), list(skip)
    head, why = find_classifier(model, classifier)
    selected = neuron_layers(model, types=(nn.Module,), only=only, skip=skip)
    found = Coverage()
    for name, module in model.named_modules():
        for label, known in _weights(name, module, types):
            if any(matches(name, module, s) for s in skip):
                found.left_out[label] = "named in skip"
            elif name == head:
                found.left_out[label] = why
            elif name not in selected:
                found.left_out[label] = "not named in only"
            elif isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
                found.left_out[label] = "the rows of an embedding are not neurons"
            elif not known:
                found.left_out[label] = f"a {type(module).__name__} is not among the layers that this method knows"
                found.unsupported.append(label)
            else:
                found.chosen[name] = module
    return found


def find_classifier(model: nn.Module, classifier: ClassifierLike) -> tuple[str | None, str]:
    """The name of the layer that classifies, or None, and the words that say why it is left out."""
    named = "the classifier, which is trained as usual"
    if classifier is False:
        return None, named
    if classifier is None:
        found = output_layer(model) or None  # a model that is one layer is not its own classifier
        sure = found is not None and isinstance(model.get_submodule(found), Classifier)
        return found, named if sure else f"taken for {named}; classifier=False includes it"
    names = dict(model.named_modules())
    found = next((n for n, m in names.items() if n == classifier or m is classifier), None)
    if found is None:
        raise ValueError(
            f"classifier must be a module of {type(model).__name__}, the name of one or False, got {classifier!r}"
        )
    return found, named


def _weights(name: str, module: nn.Module, types: tuple[type[nn.Module], ...]) -> Iterable[tuple[str, bool]]:
    """The matrices that a module holds by label, and whether the method knows their kind."""
    if "parametrizations" in name.split("."):  # what a layer's weight is computed from belongs to that layer
        return []
    if isinstance(module, types) or isinstance(getattr(module, "weight", None), UninitializedParameter):
        return [(name, isinstance(module, types))]
    held = [key for key, p in module._parameters.items() if isinstance(p, Tensor) and p.ndim >= 2]
    return [(name if key == "weight" else f"{name}.{key}".lstrip("."), False) for key in held]
