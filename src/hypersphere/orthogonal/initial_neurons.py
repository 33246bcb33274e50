"""Initialization of the neurons for orthogonal training, and the same for a plain network."""

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
    """Minimization of the hyperspherical energy of the neurons before training (Liu, 2020, 7.3.7 and table 7.6).

    Args:
        s: Power of the Riesz kernel; 0 means the logarithmic kernel.
        half_space: Whether to minimize the energy of the lines ±v instead of the directions v.
        steps: Maximum number of L-BFGS steps.
        distance: Distance in the kernel, ``"euclidean"`` or ``"angular"``.

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
        """Minimize the energy of the ``(neurons, dim)`` rows in place, keep their lengths, and return them."""
        from ..energy import refine_  # imported here, because nothing else in this package needs energy

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
    """Initialize the hidden neurons of a plain network as :func:`overparameterize` does, without orthogonal matrices R.

    Use it for the baselines of Liu (2020): shifted neurons (table 7.2), normalized neurons (table 7.7), and with
    ``freeze`` a network in which only the classifier is trained (F.5).

    Args:
        model: The network, changed in place.
        redraw: Function that reinitializes a weight in place, such as ``torch.nn.init.xavier_normal_``. None keeps the
            weight.
        mean: Number added to every weight after ``redraw``.
        refine: Function that lowers the energy of the ``(neurons, dim)`` rows in place.
        normalize: Whether to scale every neuron to unit length at the end.
        freeze: Whether to exclude the neurons from training.
        only: Layers to change, see :func:`plan_overparameterize`.
        skip: Layers to leave unchanged.
        classifier: The classification layer, which is left unchanged, or False if there is none.

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
    """Return a copy of the weight after the requested steps, in the order redraw, shift, refine, normalize."""
    if not abs(mean) < float("inf"):
        raise ValueError(f"mean must be a finite number, got {mean!r}")
    neurons = weight.clone(memory_format=torch.contiguous_format)
    if redraw is not None:
        redraw(neurons)
    neurons += mean
    rows = neurons.flatten(1)  # a view, so that the refinement changes neurons
    if refine is not None:
        refine(rows)
    if normalize:
        rows.copy_(unit(rows))
    return neurons
