"""Orthogonality error, parameter count and the penalty ‖RᵀR − I‖² for the learned R of a model (7.3.6)."""

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
    """Return the largest entry of |RᵀR − I| over all layers, for the active task, computed in float64.

    Args:
        model: A model changed by :func:`overparameterize` or :func:`finetune`.
        per_layer: Whether to return one value per layer instead of the largest.

    Returns:
        The error, or a dictionary from layer name to error.

    Raises:
        ValueError: If no layer of the model has a rotation.

    >>> from hypersphere.orthogonal import overparameterize
    >>> orthogonality_error(overparameterize(torch.nn.Linear(8, 3), "gram_schmidt")) < 1e-6
    True
    """
    errors_or_none = {name: site.parametrization.error() for name, site in require_rotated(model).items()}
    errors = {name: error for name, error in errors_or_none.items() if error is not None}
    if not errors:
        raise ValueError("no tuned layer of the model has a rotation: its fine-tuning methods do not rotate weights")
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
    """Count the learned parameters of all R of the active task: d², d²/k² or d²/k per layer, as in tables F.4 and F.5.

    Neurons, biases and layers without R are not counted.

    Args:
        model: A model changed by :func:`overparameterize` or :func:`finetune`.
        per_layer: Whether to return one count per layer instead of the sum.
        freedom: Whether to return the degrees of freedom of R instead, n(n − 1)/2 for an orthogonal n×n matrix.

    Returns:
        The count, or a dictionary from layer name to count.

    Raises:
        ValueError: If no layer of the model has a rotation.

    >>> from hypersphere.orthogonal import overparameterize
    >>> count_rotation_parameters(overparameterize(torch.nn.Conv2d(64, 64, 3), blocks=2))
    165888
    """
    counts = {name: site.parametrization.count(freedom) for name, site in require_rotated(model).items()}
    return counts if per_layer else sum(counts.values())


class OrthogonalityPenalty(nn.Module):
    r"""The regularizer β·Σ_layers ‖RᵀR − I‖²_F over the R of an over-parameterized model (Liu, 2020, eq. 7.7).

    Use it with ``overparameterize(model, "regularized")``. To penalize the neurons of a layer instead of its R, use
    :class:`hypersphere.energy.Orthonormality`. Both call :func:`hypersphere.geometry.orthonormality`.

    Args:
        model: An over-parameterized model. It does not become a submodule of the penalty.
        weight: Weight β ≥ 0. Liu (2020) gives no value; the default is 1.

    Raises:
        ValueError: If ``weight`` is negative or not finite, or no layer of the model is over-parameterized.

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
        """Return the weighted penalty. ``labels`` is unused and exists for the regularizer interface."""
        terms = []
        for parametrization in require_overparameterized(self._model[0]).values():
            r = parametrization.rotation.matrix()
            repeats = parametrization.blocks if r.ndim == 2 else 1  # how often a shared block occurs on the diagonal
            terms.append(repeats * orthonormality(r.mT))
        return self.weight * torch.stack(terms).sum()

    def terms(self, labels: Tensor | None = None) -> dict[str, Tensor]:
        """Return the penalty under the name ``"orthogonality"``."""
        return {"orthogonality": self(labels)}

    def step(self) -> None:
        """Do nothing: the penalty has no schedule."""

    def extra_repr(self) -> str:
        """Describe β."""
        return f"weight={self.weight}"
