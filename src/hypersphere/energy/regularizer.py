"""What every regulariser of neurons shares: which layers it sees, their weights, and how the values add up to a loss."""

from collections.abc import Callable, Iterable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..neurons import Selector, neuron_layers, neurons, output_layer


class Regularizer(nn.Module):
    r"""λ_h·Σ_{hidden layers} value + λ_o·value of the output layer, as a loss: ``loss = criterion(…) + regularizer()``.

    The model is looked at, not owned: its parameters and state are not part of this module's. A layer's neurons are the
    rows of its weight as it acts in the forward pass, whatever parametrizes it; the neurons of a grouped convolution
    are compared within their group, which sees the same inputs. Layers without two neurons to compare are left out
    and listed in ``skipped`` with the reason.

    Args:
        model: whose Linear and Conv layers are regularised.
        hidden, output: the weights λ_h and λ_o; 0 leaves the layers out.
        skip: layers to leave out: names, patterns, types, modules or predicates.
        classifier: the name of the output layer, by default the last Linear; False if there is none.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        hidden: float,
        output: float,
        skip: Iterable[Selector] = (),
        classifier: str | Literal[False] | None = None,
    ):
        super().__init__()
        for name, value in (("hidden", hidden), ("output", output)):
            if not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be a number ≥ 0, got {value!r}")
        everything = neuron_layers(model)
        if classifier is None:
            classifier = output_layer(model)
        elif classifier is not False and classifier not in everything:
            raise ValueError(
                f"classifier must name a Linear or Conv layer of the model, got {classifier!r}; it has {', '.join(everything)}"
            )
        chosen = neuron_layers(model, skip=skip)
        self.skipped = {name: "by name" for name in everything if name not in chosen}
        self._layers: dict[str, tuple[nn.Module, float]] = {}
        for name, module in chosen.items():
            weight = output if name == classifier else hidden
            reason = "weight 0" if weight == 0 else _reason_to_skip(module)
            if reason:
                self.skipped[name] = reason
            else:
                self._layers[name] = (module, weight)
        if not self._layers:
            raise ValueError(f"no layer of {type(model).__name__} is left to regularise: {self.skipped}")
        self.classifier = classifier if isinstance(classifier, str) and classifier in self._layers else None

    def weights(self) -> dict[str, Float[Tensor, "groups neurons dim"]]:
        """The neurons of each layer as they are now, those of a grouped convolution by group."""
        return {name: grouped_neurons(module) for name, (module, _) in self._layers.items()}

    def per_layer(self) -> dict[str, Float[Tensor, ""]]:
        """The value of each layer, without its weight in the loss."""
        weights = self.weights()
        values = {}
        if self.classifier is not None:
            values[self.classifier] = self.output_value(weights.pop(self.classifier))
        values |= self.hidden_values(weights)
        return {name: values[name] for name in self._layers}

    def forward(self) -> Float[Tensor, ""]:
        """The weighted sum over the layers."""
        values = self.per_layer()
        first = next(iter(values.values()))
        weights = [weight for _, weight in self._layers.values()]
        return (torch.stack([value.to(first.device) for value in values.values()]) * first.new_tensor(weights)).sum()

    def hidden_values(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """The value of each hidden layer from its neurons, (groups, neurons, dim)."""
        raise TypeError(f"{type(self).__name__} must define hidden_values(weights)")

    def output_value(self, weight: Tensor) -> Tensor:
        """The value of the output layer."""
        raise TypeError(f"{type(self).__name__} must define output_value(weight)")

    def extra_repr(self) -> str:
        """The layers and what was left out."""
        layers = ", ".join(f"{name}: {weight:g}" for name, (_, weight) in self._layers.items())
        return f"{{{layers}}}, skipped={self.skipped}"


class Penalty(Regularizer):
    r"""Any measure of a weight matrix as a regulariser: the same layers, the same loss.

    ``measure`` maps neurons in rows to a scalar that is to be small: :func:`~hypersphere.geometry.orthonormality`
    (1e-5 in the text, D.1), :func:`~hypersphere.geometry.orthogonality`, :func:`srip`, or one of the uniformity
    objectives. The output layer is left out unless ``output`` is given.

    >>> from hypersphere.geometry import orthonormality
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> penalty = Penalty(net, orthonormality)
    >>> list(penalty.per_layer()), penalty.skipped
    (['0'], {'2': 'weight 0'})
    """

    def __init__(
        self,
        model: nn.Module,
        measure: Callable[[Tensor], Tensor],
        *,
        hidden: float = 1e-5,
        output: float = 0.0,
        skip: Iterable[Selector] = (),
        classifier: str | Literal[False] | None = None,
    ):
        super().__init__(model, hidden=hidden, output=output, skip=skip, classifier=classifier)
        if not callable(measure):
            raise ValueError(f"measure must be a function of a weight matrix, got {measure!r}")
        self.measure = measure

    def hidden_values(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """The measure of each layer, the mean over the groups of a grouped convolution."""
        return {name: self.output_value(weight) for name, weight in weights.items()}

    def output_value(self, weight: Tensor) -> Tensor:
        """The same measure."""
        return torch.stack([self.measure(group) for group in weight]).mean()


def grouped_neurons(module: nn.Module) -> Float[Tensor, "groups neurons dim"]:
    """The neurons of a layer, those of a grouped convolution by group."""
    rows = neurons(module)
    groups = getattr(module, "groups", 1)
    return rows.unflatten(0, (groups, -1))


def _reason_to_skip(module: nn.Module) -> str | None:
    _, n, dim = grouped_neurons(module).shape
    if n < 2:
        return "fewer than two neurons to compare"
    return "neurons of one dimension have no angle" if dim < 2 else None
