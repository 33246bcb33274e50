"""Measures and the penalty for the learned R of a model: orthogonality error, parameter counts, ‖RᵀR − I‖² (7.3.6)."""

from typing import Literal, overload

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..geometry import orthonormality
from .parametrization import require_overparameterized, require_rotated


@overload
def orthogonality_error(model: nn.Module, per_layer: Literal[False] = False) -> float: ...
@overload
def orthogonality_error(model: nn.Module, per_layer: Literal[True]) -> dict[str, float]: ...
@torch.no_grad()
def orthogonality_error(model: nn.Module, per_layer: bool = False) -> float | dict[str, float]:
    """Return the largest entry of |RᵀR − I| over all layers, for the task in use; products are taken in float64.

    Args:
        model: a model changed by :func:`overparameterize` or :func:`finetune`.
        per_layer: whether to return one value per layer instead of the largest.

    Returns:
        The error, or a dictionary from layer name to error.

    Raises:
        ValueError: if no layer of the model has a rotation.

    >>> from hypersphere.orthogonal import overparameterize
    >>> orthogonality_error(overparameterize(torch.nn.Linear(8, 3), "gram_schmidt")) < 1e-6
    True
    """
    found = {name: site.own.error() for name, site in require_rotated(model).items()}
    errors = {name: error for name, error in found.items() if error is not None}
    if not errors:
        raise ValueError("no tuned layer of the model has a rotation: its methods change weights in another way")
    return errors if per_layer else max(errors.values())


@overload
def count_rotation_parameters(model: nn.Module, per_layer: Literal[False] = False, *, freedom: bool = False) -> int: ...
@overload
def count_rotation_parameters(
    model: nn.Module, per_layer: Literal[True], *, freedom: bool = False
) -> dict[str, int]: ...
def count_rotation_parameters(
    model: nn.Module, per_layer: bool = False, *, freedom: bool = False
) -> int | dict[str, int]:
    """Count the learned numbers of all R of the task in use, as tables F.4 and F.5 do: d², d²/k² or d²/k per layer.

    Neurons, biases and layers without R are not counted.

    Args:
        model: a model changed by :func:`overparameterize` or :func:`finetune`.
        per_layer: whether to return one count per layer instead of the sum.
        freedom: whether to count the dimension of the set in which R moves instead, n(n − 1)/2 for an orthogonal
            n×n matrix.

    Returns:
        The count, or a dictionary from layer name to count.

    Raises:
        ValueError: if no layer of the model has a rotation.

    >>> from hypersphere.orthogonal import overparameterize
    >>> count_rotation_parameters(overparameterize(torch.nn.Conv2d(64, 64, 3), blocks=2))
    165888
    """
    counts = {name: site.own.count(freedom) for name, site in require_rotated(model).items()}
    return counts if per_layer else sum(counts.values())


class OrthogonalityPenalty(nn.Module):
    r"""β·Σ_layers ‖RᵀR − I‖²_F over the R of an over-parameterized model (Liu, 2020, eq. 7.7), as a regularizer.

    It belongs to ``overparameterize(model, "regularized")``. To penalize the neurons of a layer rather than its R, use
    :class:`hypersphere.energy.Orthonormality`; both are computed by :func:`hypersphere.geometry.orthonormality`.

    Args:
        model: an over-parameterized model. The penalty reads it and does not own it.
        weight: β, a number ≥ 0. Liu (2020) leaves it to the user; the default is 1.

    Raises:
        ValueError: if ``weight`` is negative or not finite, or if no layer of the model is over-parameterized.

    >>> from hypersphere.orthogonal import overparameterize
    >>> penalty = OrthogonalityPenalty(overparameterize(torch.nn.Linear(8, 3), "regularized"), weight=0.1)
    >>> penalty().item()
    0.0
    """

    def __init__(self, model: nn.Module, weight: float = 1.0):
        super().__init__()
        if not 0 <= weight < float("inf"):
            raise ValueError(f"weight must be a finite number ≥ 0, got {weight!r}")
        require_overparameterized(model)
        self.weight, self._model = weight, [model]  # in a list, so that the model is not a child of this module

    def forward(self, labels: Tensor | None = None) -> Float[Tensor, ""]:
        """Return the weighted penalty; ``labels`` is part of the regularizer interface and not used."""
        terms = []
        for own in require_overparameterized(self._model[0]).values():
            r = own.rotation.matrix()
            repeats = own.blocks if r.ndim == 2 else 1  # a shared block stands on the diagonal this often
            terms.append(repeats * orthonormality(r.mT))
        return self.weight * torch.stack(terms).sum()

    def terms(self, labels: Tensor | None = None) -> dict[str, Tensor]:
        """Return the penalty under its name."""
        return {"orthogonality": self(labels)}

    def step(self) -> None:
        """Do nothing: the penalty has no schedule."""

    def extra_repr(self) -> str:
        """Describe β."""
        return f"weight={self.weight}"
