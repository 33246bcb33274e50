"""The penalty of orthogonal regularisation as a part of a training loss."""

from jaxtyping import Float
from torch import Tensor, nn

from .orthogonality import orthogonality_penalty
from .parametrization import overparameterized


class OrthogonalityPenalty(nn.Module):
    r"""β·Σ_layers ‖RᵀR − I‖²_F over the R of an over-parameterized model (Liu, 2020, eq. 7.7).

    It belongs to ``overparameterize(model, "regularized")``. Liu (2020) leaves β to the user; the default is 1.

    Args:
        model: an over-parameterized model, which is looked at and not owned.
        weight: β, a number ≥ 0.

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
        overparameterized(model)
        self.weight, self._model = weight, [model]  # in a list, so that the model is not a child of this module

    def forward(self, labels: Tensor | None = None) -> Float[Tensor, ""]:
        """The weighted penalty; labels are accepted like by every regulariser, and not used."""
        return orthogonality_penalty(self._model[0], self.weight)

    def terms(self, labels: Tensor | None = None) -> dict[str, Tensor]:
        """The one term of this regulariser by name."""
        return {"orthogonality": self(labels)}

    def step(self) -> None:
        """One training step has passed; the penalty has no state, so nothing changes."""

    def extra_repr(self) -> str:
        """β."""
        return f"weight={self.weight}"
