"""Penalties of the Gram matrix of the neurons, which Liu (2020) compares the energy with: one class each."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..geometry import norm, normalize, orthogonality, orthonormality
from ..neurons import Selectors
from .regularizer import Penalty


class Orthonormality(Penalty):
    r"""λ_h·Σ_j ‖W_jW_jᵀ − I‖²_F: neurons of unit length at right angles; λ_h is 10⁻⁵ in Liu (2020), D.1.

    The arguments are those of :class:`~hypersphere.energy.Regularizer`; the output layer is left out unless ``output``
    is given.

    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> Orthonormality(net).skipped
    {'2': 'the output layer, whose weight is 0; classifier=False if it is a hidden one'}
    """

    def __init__(
        self,
        model: nn.Module,
        hidden: float = 1e-5,
        output: float = 0.0,
        *,
        only: Selectors | None = None,
        skip: Selectors = (),
        classifier: nn.Module | str | Literal[False] | None = None,
    ):
        super().__init__(
            model, orthonormality, hidden=hidden, output=output, only=only, skip=skip, classifier=classifier
        )


class Orthogonality(Penalty):
    r"""λ_h·Σ_j ‖W_jW_jᵀ − diag(W_jW_jᵀ)‖²_F: neurons at right angles, of any length.

    The arguments are those of :class:`~hypersphere.energy.Regularizer`, λ_h that of :class:`Orthonormality`.

    >>> Orthogonality(torch.nn.Linear(4, 4), classifier=False)().requires_grad
    True
    """

    def __init__(
        self,
        model: nn.Module,
        hidden: float = 1e-5,
        output: float = 0.0,
        *,
        only: Selectors | None = None,
        skip: Selectors = (),
        classifier: nn.Module | str | Literal[False] | None = None,
    ):
        super().__init__(
            model, orthogonality, hidden=hidden, output=output, only=only, skip=skip, classifier=classifier
        )


class SRIP(Penalty):
    r"""λ_h·Σ_j σ(W_jW_jᵀ − I), the spectral restricted isometry penalty that table 6.1 compares with.

    ``iterations`` of the power method are made for each value (:func:`srip`). Liu (2020) gives no weight; the default
    is that of :class:`Orthonormality`. The other arguments are those of :class:`~hypersphere.energy.Regularizer`.

    >>> SRIP(torch.nn.Linear(4, 4), hidden=1e-3, classifier=False)().requires_grad
    True
    """

    def __init__(
        self,
        model: nn.Module,
        hidden: float = 1e-5,
        output: float = 0.0,
        iterations: int = 10,
        *,
        only: Selectors | None = None,
        skip: Selectors = (),
        classifier: nn.Module | str | Literal[False] | None = None,
    ):
        super().__init__(model, self._srip, hidden=hidden, output=output, only=only, skip=skip, classifier=classifier)
        if iterations < 1:
            raise ValueError(f"iterations must be a number ≥ 1, got {iterations!r}")
        self.iterations = iterations

    def _srip(self, weight: Tensor) -> Tensor:
        return srip(weight, self.iterations)


def srip(weight: Float[Tensor, "neurons *dim"], iterations: int = 10) -> Float[Tensor, ""]:
    r"""Spectral restricted isometry: σ(WWᵀ − I), the largest singular value, by power iteration (table 6.1).

    0 for orthonormal neurons. Each iteration multiplies twice by WWᵀ − I, from a fixed random vector; the value is a
    lower bound that rises with ``iterations``.

    >>> srip(2 * torch.eye(3))
    tensor(3.)
    """
    if iterations < 1:
        raise ValueError(f"iterations must be a number ≥ 1, got {iterations!r}")
    with torch.autocast(weight.device.type, enabled=False):
        w = weight.flatten(1).to(torch.promote_types(weight.dtype, torch.float32))
        v = torch.randn(len(w), generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(w)
        with torch.no_grad():
            for _ in range(2 * iterations):
                v = normalize(_deviation(w, v))
        # With v the singular vector, d‖(WWᵀ − I)v‖ is the derivative of σ; at 0 it has none and none is given.
        return norm(_deviation(w, v))


def _deviation(w: Tensor, v: Tensor) -> Tensor:
    """Return (WWᵀ − I)v without the Gram matrix."""
    return w @ (w.T @ v) - v
