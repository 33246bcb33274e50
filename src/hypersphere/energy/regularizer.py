"""The base class of regularizers of neurons: selects layers and adds up their weighted values."""

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

    The parameters and the state of the model do not become part of this module. The neurons of a layer are the rows of
    the weight used in the forward pass, after all parametrizations; for the Conv1D of transformers they are the columns.
    Neurons of a grouped convolution are compared within their group, because only these have the same inputs. The
    queries, the keys and the values of attention form separate groups. A tied weight counts once, as the output layer
    if it is used there. ``skipped`` lists all other layers with the reason.

    Args:
        model: The model whose layers are regularized.
        hidden, output: Weights λ_h and λ_o; 0 skips the layers.
        only, skip: Layers to regularize and layers to skip, as names, patterns, types, modules or predicates. ``only``
            does not apply to an output layer given by ``classifier``.
        classifier: The output layer, as a name or as a module, which may be outside the model, such as a head. None
            finds it by :func:`hypersphere.neurons.output_layer`. False means that the model ends in features and has
            no output layer.

    Raises:
        ValueError: If a weight is negative, a selector matches nothing, or no layer is left.

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
        weights, self.skipped = neuron_weights(model)
        self.classifier = _add_classifier(model, weights, classifier)
        classifier_names = (self.classifier, f"{self.classifier}.weight")
        self.skipped = {name: reason for name, reason in self.skipped.items() if name not in classifier_names}
        self._has_explicit_classifier = classifier not in (None, False)
        self.hidden, self.output = float(hidden), float(output)
        self._layers: dict[str, NeuronWeight] = {}
        only, skip = None if only is None else as_selectors(only), as_selectors(skip)
        names = [name for name, _ in model.named_modules()]
        check_selectors(type(model).__name__, [*names, *weights], [*(only or []), *skip])
        output_weight = None if self.classifier is None else weights[self.classifier].stored()
        for name, weight in weights.items():
            reason = self._find_skip_reason(name, weight, only, skip)
            if name != self.classifier and output_weight is not None and weight.stored() is output_weight:
                reason = f"its weight is tied to that of {self.classifier}"
            if reason:
                self.skipped[name] = reason
            else:
                self._layers[name] = weight
        if not self._layers:
            raise NoLayersError(f"no layer of {type(model).__name__} is left to regularize: {self.skipped}")

    def weights(self) -> dict[str, Float[Tensor, "groups neurons dim"]]:
        """Return the current neurons of each layer by name; a grouped convolution has one matrix per group."""
        return {name: layer.rows() for name, layer in self._layers.items()}

    def per_layer(self, labels: Int[Tensor, " samples"] | None = None) -> dict[str, Float[Tensor, ""]]:
        """Return the value of each layer, without the weights λ_h and λ_o.

        If the classes are sharded among processes, every process must call this method, with the labels of its batch.
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
        """Return the weighted terms ``"hidden"`` and ``"output"``, whose sum is the loss; a term without layers is omitted."""
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
        """Return the value of the output layer; a data-dependent regularizer uses the labels of the batch."""

    def sharded_value(self, weight: Tensor, labels: Tensor | None) -> Tensor:
        """Return the value of an output layer whose classes are sharded among processes, the same on every process.

        By default every process gathers all classes and the labels of all batches. It receives the gradient of its
        local classes.
        """
        group = weight.device_mesh.get_group()  # type: ignore[attr-defined]
        labels = None if labels is None else gather_rows(labels, group)
        return self.output_value(gather_weight(weight).unsqueeze(0), labels)

    def extra_repr(self) -> str:
        """Return the layers with their weights λ, and the skipped layers."""
        layers = (f"{name}: {self.output if name == self.classifier else self.hidden:g}" for name in self._layers)
        return f"{{{', '.join(layers)}}}, skipped={self.skipped}"

    def _find_skip_reason(
        self, name: str, weight: NeuronWeight, only: list[Selector] | None, skip: list[Selector]
    ) -> str | None:
        def is_selected_by(selector: Selector) -> bool:
            return matches(name, weight.module, selector)

        if isinstance(weight.module, Classifier) and name != self.classifier:
            return "a classifier, but not the one this regularizer was given"
        if any(map(is_selected_by, skip)):
            return "left out by skip"
        is_explicit = self._has_explicit_classifier and name == self.classifier
        if only is not None and not is_explicit and not any(map(is_selected_by, only)):
            return "not chosen by only"
        if name == self.classifier and self.output == 0:
            return "the output layer, because output is 0; pass classifier=False if it is a hidden layer"
        if name != self.classifier and self.hidden == 0:
            return "a hidden layer, because hidden is 0"
        _, n, dim = weight.rows().shape
        if n < 2:
            return "fewer than two neurons to compare"
        return "neurons of one dimension have no angle" if dim < 2 else None


class Penalty(Regularizer):
    r"""A regularizer from any measure of a weight matrix.

    ``measure`` maps neurons in rows to a scalar to be minimized, for example :func:`maximum_separation`. For penalties
    of the Gram matrix use :class:`Orthonormality`, :class:`Orthogonality` and :class:`SRIP`. The output layer is skipped
    unless ``output`` is given. For the other arguments see :class:`Regularizer`.

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
        """Return the measure of each layer; for a grouped convolution, the mean over its groups."""
        return {name: self.output_value(weight, None) for name, weight in weights.items()}

    def output_value(self, weight: Float[Tensor, "groups neurons dim"], labels: Tensor | None) -> Tensor:
        """Return the measure of the output layer; labels are ignored."""
        return torch.stack([self.measure(group) for group in weight]).mean()


def _add_classifier(
    model: nn.Module, weights: dict[str, NeuronWeight], classifier: nn.Module | str | Literal[False] | None
) -> str | None:
    """Return the name of the output layer, after adding it to ``weights`` if it is missing."""
    if classifier is False:
        return None
    modules = dict(model.named_modules())
    if isinstance(classifier, nn.Module):
        names_in_model = [name for name, module in modules.items() if module is classifier]
        names = itertools.chain(names_in_model, ["classifier"], map("classifier{}".format, itertools.count(2)))
        name = next(name for name in names if names_in_model or name not in modules)
        weights.setdefault(name, _wrap_class_weights(classifier))
        return name
    name_or_none = output_layer(model) if classifier is None else classifier
    if name_or_none is not None and name_or_none not in weights:
        if name_or_none not in modules:
            known = ", ".join(weights)
            raise ValueError(f"classifier must name a layer with neurons, got {classifier!r}; the model has {known}")
        weights[name_or_none] = _wrap_class_weights(modules[name_or_none])
    return name_or_none


def _wrap_class_weights(module: nn.Module) -> NeuronWeight:
    weight = getattr(module, "weight", None)
    if not isinstance(module, Classifier) and not (isinstance(weight, Tensor) and weight.ndim == 2):
        raise ValueError(f"classifier must have a weight with one row per class, got {type(module).__name__}")
    return NeuronWeight(module)
