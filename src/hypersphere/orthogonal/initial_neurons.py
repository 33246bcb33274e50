"""The initial neurons of orthogonal training, and the same start for a plain network."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ..geometry import normalize as unit
from ..neurons import Selectors
from .layer_selection import ClassifierLike, select_layers


@dataclass(frozen=True)
class Refinement:
    """A way to move the neurons before training so that their hyperspherical energy falls (Liu, 2020, 7.3.7 and table 7.6).

    Args:
        s: power of the Riesz kernel; 0 is the logarithm.
        half_space: whether the energy is that of the lines ±v rather than of the directions v.
        steps: the largest number of L-BFGS steps.
        distance: ``"euclidean"`` or ``"angular"``.

    >>> Refinement(s=1, half_space=True)(torch.randn(8, 3)).shape
    torch.Size([8, 3])
    """

    s: float = 2
    half_space: bool = False
    steps: int = 100
    distance: Literal["euclidean", "angular"] = "euclidean"

    def __post_init__(self) -> None:
        if not self.s >= 0 or not self.steps >= 1:
            raise ValueError(f"a refinement needs s ≥ 0 and steps ≥ 1, got s={self.s!r}, steps={self.steps!r}")

    def __call__(self, rows: Tensor) -> Tensor:
        """Refine the ``(neurons, dim)`` rows in place, keep their lengths, and return them."""
        from ..energy import refine_  # the parts do not need each other otherwise

        return refine_(rows, self.s, self.half_space, distance=self.distance, steps=self.steps)


def prepare_neurons(
    model: nn.Module,
    *,
    redraw: Callable[[Tensor], object] | None = None,
    mean: float = 0.0,
    refine: Refinement | Callable[[Tensor], object] | None = None,
    normalize: bool = False,
    freeze: bool = False,
    only: Selectors | None = None,
    skip: Selectors = (),
    classifier: ClassifierLike = None,
) -> nn.Module:
    """Give the hidden neurons of a plain network the start that :func:`overparameterize` gives them, without any R.

    It makes the baselines of Liu (2020): shifted (table 7.2) and normalized neurons (table 7.7), and with ``freeze``
    the network whose classifier alone is trained (F.5). The arguments are those of :func:`overparameterize`.

    Args:
        model: the network, changed in place.
        redraw: function that draws a weight anew in place, such as ``torch.nn.init.xavier_normal_``; None keeps it.
        mean: number added to every weight afterwards.
        refine: function that lowers the energy of the ``(neurons, dim)`` rows in place.
        normalize: whether every neuron then gets unit length.
        freeze: whether the neurons are no longer trained.
        only: layers to change, see :func:`plan_overparameterize`.
        skip: layers to leave out.
        classifier: the layer to leave alone, or False.

    Returns:
        The model.

    >>> net = prepare_neurons(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)), normalize=True)
    >>> net[0].weight.norm(dim=1).allclose(torch.ones(8))
    True
    """
    chosen = select_layers(model, only, skip, classifier)[0]
    if not chosen:
        raise ValueError(f"{type(model).__name__} has no Linear or Conv layer to prepare with these arguments")
    for module in chosen.values():
        weight: Tensor = module.weight  # type: ignore[assignment]
        with torch.no_grad():
            weight.copy_(
                initialize_neurons(weight.detach(), redraw=redraw, mean=mean, refine=refine, normalize=normalize)
            )
        weight.requires_grad_(not freeze)
    return model


def initialize_neurons(
    weight: Tensor,
    *,
    redraw: Callable[[Tensor], object] | None,
    mean: float,
    refine: Callable[[Tensor], object] | None,
    normalize: bool,
) -> Tensor:
    """Return a copy of the weight, drawn anew, shifted, refined and normalized in this order, as far as requested."""
    if not abs(mean) < float("inf"):
        raise ValueError(f"mean must be a finite number, got {mean!r}")
    neurons = weight.clone(memory_format=torch.contiguous_format)
    if redraw is not None:
        redraw(neurons)
    neurons += mean
    rows = neurons.flatten(1)  # a view: the refinement works in place
    if refine is not None:
        refine(rows)
    if normalize:
        rows.copy_(unit(rows))
    return neurons
