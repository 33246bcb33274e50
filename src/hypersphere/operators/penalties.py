r"""Penalties on the angles between a layer's neurons, for operators without use for weight decay (3.2.4, 4.5)."""

from collections.abc import Callable, Iterable

from jaxtyping import Float
from torch import Tensor, nn

from .. import geometry
from ..neurons import Selector, neuron_layers, neurons


def orthonormality(
    model: nn.Module, *, only: Iterable[Selector] | None = None, skip: Iterable[Selector] = ()
) -> Float[Tensor, ""]:
    r"""Σ ‖WWᵀ − I‖²_F over the Linear and Conv layers; rows of W are neurons. Liu (2020) adds it with weight 1e-5.

    A grouped convolution counts each group's filters among themselves, as filters of two groups see different inputs.
    With more neurons than inputs the penalty cannot reach 0.

    >>> layer = torch.nn.Linear(3, 3)
    >>> _ = torch.nn.init.eye_(layer.weight)
    >>> orthonormality(layer).item()
    0.0
    """
    return _total(geometry.orthonormality, model, only, skip)


def orthogonality(
    model: nn.Module, *, only: Iterable[Selector] | None = None, skip: Iterable[Selector] = ()
) -> Float[Tensor, ""]:
    r"""Σ ‖WWᵀ − diag(WWᵀ)‖²_F over the Linear and Conv layers: as :func:`orthonormality`, with lengths free (4.5).

    >>> layer = torch.nn.Linear(3, 3)
    >>> _ = layer.weight.data.copy_(2 * torch.eye(3))
    >>> orthogonality(layer).item()
    0.0
    """
    return _total(geometry.orthogonality, model, only, skip)


def _total(
    penalty: Callable[[Tensor], Tensor], model: nn.Module, only: Iterable[Selector] | None, skip: Iterable[Selector]
) -> Tensor:
    layers = list(neuron_layers(model, only=only, skip=skip).values())
    if not layers:
        raise ValueError(
            f"a penalty needs a model with Linear or Conv layers, got {type(model).__name__} without any selected"
        )
    terms = [penalty(neurons(layer).unflatten(0, (getattr(layer, "groups", 1), -1))) for layer in layers]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
