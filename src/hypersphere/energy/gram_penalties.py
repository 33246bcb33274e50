"""Penalties of the Gram matrix of the neurons. Liu (2020) compares the energy with them."""

import functools
from collections.abc import Callable
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..geometry import accumulation_dtype, disable_autocast, norm, normalize, orthogonality, orthonormality
from ..neurons import Selectors
from .regularizer import Penalty


class _GramPenalty(Penalty):
    """A penalty with a fixed function of the weight."""

    function: ClassVar[Callable[..., Tensor]]

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
        measure = type(self).function
        super().__init__(model, measure, hidden=hidden, output=output, only=only, skip=skip, classifier=classifier)


class Orthonormality(_GramPenalty):
    r"""λ_h·Σ_j ‖W_jW_jᵀ − I‖²_F: a penalty that makes neurons orthonormal; λ_h is 10⁻⁵ in Liu (2020), D.1.

    For the arguments see :class:`~hypersphere.energy.Regularizer`. The output layer is skipped unless ``output`` is
    given.

    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> Orthonormality(net).skipped
    {'2': 'the output layer, because output is 0; pass classifier=False if it is a hidden layer'}
    """

    function = staticmethod(orthonormality)


class Orthogonality(_GramPenalty):
    r"""λ_h·Σ_j ‖W_jW_jᵀ − diag(W_jW_jᵀ)‖²_F: a penalty that makes neurons orthogonal, of any length.

    For the arguments see :class:`~hypersphere.energy.Regularizer`. The default λ_h is that of :class:`Orthonormality`.

    >>> Orthogonality(torch.nn.Linear(4, 4), classifier=False)().requires_grad
    True
    """

    function = staticmethod(orthogonality)


class SRIP(Penalty):
    r"""λ_h·Σ_j σ(W_jW_jᵀ − I), the spectral restricted isometry penalty of table 6.1.

    Each value takes ``iterations`` of the power method, see :func:`srip`. Liu (2020) gives no λ_h; the default is that of
    :class:`Orthonormality`. For the other arguments see :class:`~hypersphere.energy.Regularizer`.

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
        if iterations < 1:
            raise ValueError(f"iterations must be a number ≥ 1, got {iterations!r}")
        measure = functools.partial(srip, iterations=iterations)
        super().__init__(model, measure, hidden=hidden, output=output, only=only, skip=skip, classifier=classifier)


def srip(weight: Float[Tensor, "neurons *dim"], iterations: int = 10) -> Float[Tensor, ""]:
    r"""Return the spectral restricted isometry σ(WWᵀ − I), the largest singular value, by power iteration (table 6.1).

    The value is 0 for orthonormal neurons. The power iteration starts from a fixed random vector and multiplies twice by
    WWᵀ − I per iteration. The result is a lower bound that rises with ``iterations``.

    >>> srip(2 * torch.eye(3))
    tensor(3.)
    """
    if iterations < 1:
        raise ValueError(f"iterations must be a number ≥ 1, got {iterations!r}")
    with disable_autocast(weight.device.type):
        w = weight.flatten(1).to(accumulation_dtype(weight))
        v = torch.randn(len(w), generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(w)
        with torch.no_grad():
            for _ in range(2 * iterations):
                v = normalize(_apply_deviation(w, v))
        # If v is the singular vector, d‖(WWᵀ − I)v‖ is the derivative of σ. At σ = 0 there is none, and the gradient is 0.
        return norm(_apply_deviation(w, v))


def _apply_deviation(w: Tensor, v: Tensor) -> Tensor:
    """Return (WWᵀ − I)v without the Gram matrix."""
    return w @ (w.T @ v) - v
