"""The base class of regularizers of neurons: selection of layers, their weights, and the sum of their values."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..collectives import gather_rows, gather_weight
from ..neurons import (
    Classifier,
    NeuronWeight,
    Selector,
    Selectors,
    as_selectors,
    check_selectors,
    matches,
    neuron_weights,
    output_layer,
)


class NoLayersError(ValueError):
    """A model without any layer that a regularizer can apply to.

    >>> issubclass(NoLayersError, ValueError)
    True
    """


class Regularizer(nn.Module, ABC):
    r"""λ_h·Σ_{hidden layers} value + λ_o·value of the output layer, as a loss: ``loss = criterion(…) + regularizer()``.

    The model is looked at, not owned: its parameters and state are not part of this module's. A layer's neurons are the
    rows of its weight as it acts in the forward pass, whatever parametrizes it; the columns for the Conv1D of
    transformers. The neurons of a grouped convolution are compared within their group, which sees the same inputs, and
    the queries, keys and values of attention among themselves. A weight that is tied counts once, as the output layer's
    if it is that too. Everything that is left out is listed in ``skipped`` with the reason.

    Args:
        model: whose layers are regularized.
        hidden, output: the weights λ_h and λ_o; 0 leaves the layers out.
        only, skip: layers to take and to leave out: names, patterns, types, modules or predicates. An output layer
            that is given by ``classifier`` is taken whatever ``only`` says.
        classifier: the output layer: a name, or a module, which may be outside the model, as a head is that training
            holds beside it. None finds it (:func:`hypersphere.neurons.output_layer`); False says that the model ends
            in features and has none.

    Raises:
        ValueError: if a weight is negative, a name means nothing, or no layer is left.

    >>> class Decay(Regularizer):
    ...     def output_value(self, weight, labels):
    ...         return weight.square().sum()
    ...     def hidden_values(self, weights):
    ...         return {name: self.output_value(weight, None) for name, weight in weights.items()}
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> list(Decay(net, hidden=1e-4, output=0).per_layer())
    ['0']
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        hidden: float,
        output: float,
        only: Selectors | None = None,
        skip: Selectors = (),
        classifier: nn.Module | str | Literal[False] | None = None,
    ):
        super().__init__()
        for name, value in (("hidden", hidden), ("output", output)):
            if not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be a number ≥ 0, got {value!r}")
        found, self.skipped = neuron_weights(model)
        self.classifier = _add_classifier(model, found, classifier)
        taken = (self.classifier, f"{self.classifier}.weight")
        self.skipped = {name: why for name, why in self.skipped.items() if name not in taken}
        self._given = classifier not in (None, False)
        self.hidden, self.output = float(hidden), float(output)
        self._layers: dict[str, NeuronWeight] = {}
        only, skip = None if only is None else as_selectors(only), as_selectors(skip)
        names = [name for name, _ in model.named_modules()]
        check_selectors(type(model).__name__, [*names, *found], [*(only or []), *skip])
        shared = None if self.classifier is None else found[self.classifier].stored()
        for name, weight in found.items():
            reason = self._reason(name, weight, only, skip)
            if name != self.classifier and shared is not None and weight.stored() is shared:
                reason = f"its weight is tied to that of {self.classifier}"
            if reason:
                self.skipped[name] = reason
            else:
                self._layers[name] = weight
        if not self._layers:
            raise NoLayersError(f"no layer of {type(model).__name__} is left to regularize: {self.skipped}")

    def weights(self) -> dict[str, Float[Tensor, "groups neurons dim"]]:
        """Return the neurons of each layer as they are now, those of a grouped convolution by group."""
        return {name: layer.rows() for name, layer in self._layers.items()}

    def per_layer(self, labels: Int[Tensor, " samples"] | None = None) -> dict[str, Float[Tensor, ""]]:
        """Return the value of each layer, without its weight in the loss.

        Where the classes are divided among processes, all of them call this, each with the labels of its own batch.
        """
        values, layers = {}, dict(self._layers)
        output = layers.pop(self.classifier, None) if self.classifier is not None else None
        if self.classifier is not None and output is not None:
            if output.is_sharded():
                values[self.classifier] = self.sharded_value(cast(Tensor, output.module.weight), labels)
            else:
                values[self.classifier] = self.output_value(output.rows(), labels)
        values |= self.hidden_values({name: layer.rows() for name, layer in layers.items()})
        return {name: values[name] for name in self._layers}

    def terms(self, labels: Int[Tensor, " samples"] | None = None) -> dict[str, Float[Tensor, ""]]:
        """Return the weighted ``"hidden"`` and ``"output"`` terms that there are, whose sum is the loss."""
        values = self.per_layer(labels)
        terms = {}
        output = values.pop(self.classifier, None) if self.classifier is not None else None
        if values:
            first = next(iter(values.values()))
            terms["hidden"] = self.hidden * torch.stack([value.to(first.device) for value in values.values()]).sum()
        if output is not None:
            terms["output"] = self.output * output
        return terms

    def forward(self, labels: Int[Tensor, " samples"] | None = None) -> Float[Tensor, ""]:
        """Return the weighted sum over the layers."""
        first, *rest = self.terms(labels).values()
        return sum((term.to(first.device) for term in rest), first)

    def step(self) -> None:
        """Advance all schedules by one step; a subclass without schedules does nothing. Call once per training step."""

    @abstractmethod
    def hidden_values(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the value of each hidden layer from its neurons, (groups, neurons, dim)."""

    @abstractmethod
    def output_value(self, weight: Float[Tensor, "1 classes dim"], labels: Tensor | None) -> Tensor:
        """Return the value of the output layer; the labels of a batch are for those that have a form for them."""

    def sharded_value(self, weight: Tensor, labels: Tensor | None) -> Tensor:
        """Return the value of an output layer whose classes are divided among processes, the same on each of them.

        By default every process gathers all classes and the labels of all batches for it, and keeps the gradient of
        its own classes.
        """
        group = weight.device_mesh.get_group()  # type: ignore[attr-defined]
        labels = None if labels is None else gather_rows(labels, group)
        return self.output_value(gather_weight(weight).unsqueeze(0), labels)

    def extra_repr(self) -> str:
        """Return the layers and what was left out."""
        layers = (f"{name}: {self.output if name == self.classifier else self.hidden:g}" for name in self._layers)
        return f"{{{', '.join(layers)}}}, skipped={self.skipped}"

    def _reason(self, name: str, weight: NeuronWeight, only: list[Selector] | None, skip: list[Selector]) -> str | None:
        def means(selector: Selector) -> bool:
            return matches(name, weight.module, selector)

        if isinstance(weight.module, Classifier) and name != self.classifier:
            return "a classifier, but not the one this regularizer was given"
        if any(map(means, skip)):
            return "left out by skip"
        if only is not None and not (self._given and name == self.classifier) and not any(map(means, only)):
            return "not chosen by only"
        if name == self.classifier and self.output == 0:
            return "the output layer, whose weight is 0; classifier=False if it is a hidden one"
        if name != self.classifier and self.hidden == 0:
            return "a hidden layer, whose weight is 0"
        _, n, dim = weight.rows().shape
        if n < 2:
            return "fewer than two neurons to compare"
        return "neurons of one dimension have no angle" if dim < 2 else None


class Penalty(Regularizer):
    r"""Any measure of a weight matrix as a regularizer: the same layers, the same loss.

    ``measure`` maps neurons in rows to a scalar that is to be small, for example one of the uniformity objectives such
    as :func:`maximum_separation`. The penalties of the Gram matrix are classes of their own, :class:`Orthonormality`,
    :class:`Orthogonality` and :class:`SRIP`. The output layer is left out unless ``output`` is given; the other
    arguments are those of :class:`Regularizer`.

    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> list(Penalty(net, hs.energy.maximum_separation).per_layer())
    ['0']
    """

    def __init__(
        self,
        model: nn.Module,
        measure: Callable[[Tensor], Tensor],
        *,
        hidden: float = 1e-5,
        output: float = 0.0,
        only: Selectors | None = None,
        skip: Selectors = (),
        classifier: nn.Module | str | Literal[False] | None = None,
    ):
        super().__init__(model, hidden=hidden, output=output, only=only, skip=skip, classifier=classifier)
        if not callable(measure):
            raise ValueError(f"measure must be a function of a weight matrix, got {measure!r}")
        self.measure = measure

    def hidden_values(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the measure of each layer, the mean over the groups of a grouped convolution."""
        return {name: self.output_value(weight, None) for name, weight in weights.items()}

    def output_value(self, weight: Float[Tensor, "groups neurons dim"], labels: Tensor | None) -> Tensor:
        """Return the same measure, whatever the labels."""
        return torch.stack([self.measure(group) for group in weight]).mean()


def _add_classifier(
    model: nn.Module, found: dict[str, NeuronWeight], classifier: nn.Module | str | Literal[False] | None
) -> str | None:
    """Return the name of the output layer, which is added to what was found if it is not there."""
    if classifier is False:
        return None
    modules = dict(model.named_modules())
    if isinstance(classifier, nn.Module):
        inside = [name for name, module in modules.items() if module is classifier]
        names = itertools.chain(inside, ["classifier"], map("classifier{}".format, itertools.count(2)))
        name = next(name for name in names if inside or name not in modules)
        found.setdefault(name, _find_class_weights(classifier))
        return name
    name_or_none = output_layer(model) if classifier is None else classifier
    if name_or_none is not None and name_or_none not in found:
        if name_or_none not in modules:
            known = ", ".join(found)
            raise ValueError(f"classifier must name a layer with neurons, got {classifier!r}; the model has {known}")
        found[name_or_none] = _find_class_weights(modules[name_or_none])
    return name_or_none


def _find_class_weights(module: nn.Module) -> NeuronWeight:
    weight = getattr(module, "weight", None)
    if not isinstance(module, Classifier) and not (isinstance(weight, Tensor) and weight.ndim == 2):
        raise ValueError(f"classifier must have a weight with one row for each class, got {type(module).__name__}")
    return NeuronWeight(module)
