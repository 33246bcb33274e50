"""What an over-parameterized model says about its rotations: orthogonality, parameters, the penalty of 7.3.6."""

from typing import Literal, overload

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..geometry import orthonormality
from .parametrization import overparameterized
from .reparametrization import reparametrized


@overload
def orthogonality_error(model: nn.Module, per_layer: Literal[False] = False) -> float: ...
@overload
def orthogonality_error(model: nn.Module, per_layer: Literal[True]) -> dict[str, float]: ...
@torch.no_grad()
def orthogonality_error(model: nn.Module, per_layer: bool = False) -> float | dict[str, float]:
    """The largest entry of |RᵀR − I| over the layers' R of the task in use, or by layer; the product is taken in float64.

    >>> from hypersphere.orthogonal import overparameterize
    >>> orthogonality_error(overparameterize(torch.nn.Linear(8, 3), "gram_schmidt")) < 1e-6
    True
    """
    errors = {name: site.own.error() for name, site in reparametrized(model).items()}
    return errors if per_layer else max(errors.values())


@overload
def trainable_parameters(model: nn.Module, per_layer: Literal[False] = False, *, freedom: bool = False) -> int: ...
@overload
def trainable_parameters(model: nn.Module, per_layer: Literal[True], *, freedom: bool = False) -> dict[str, int]: ...
def trainable_parameters(model: nn.Module, per_layer: bool = False, *, freedom: bool = False) -> int | dict[str, int]:
    """How many numbers the layers' R of the task in use have, as tables F.4 and F.5 count them: d², d²/k² or d²/k.

    With ``freedom`` the dimension of the set R moves in instead, n(n − 1)/2 for an orthogonal n×n matrix. Neurons,
    biases and layers that are trained as usual are not counted.

    >>> from hypersphere.orthogonal import overparameterize
    >>> trainable_parameters(overparameterize(torch.nn.Conv2d(64, 64, 3), blocks=2))
    165888
    """
    counts = {name: site.own.count(freedom) for name, site in reparametrized(model).items()}
    return counts if per_layer else sum(counts.values())


def orthogonality_penalty(model: nn.Module, beta: float = 1.0) -> Float[Tensor, ""]:
    r"""β Σ_layers ‖RᵀR − I‖²_F, differentiable: add it to the loss under ``method="regularized"`` (eq. 7.7).

    Liu (2020) leaves β to the user.

    >>> from hypersphere.orthogonal import overparameterize
    >>> orthogonality_penalty(overparameterize(torch.nn.Linear(8, 3), "regularized")).item()
    0.0
    """
    terms = []
    for own in overparameterized(model).values():
        r = own.rotation.matrix()
        repeats = own.blocks if r.ndim == 2 else 1  # a shared block stands on the diagonal this often
        terms.append(repeats * orthonormality(r.mT))
    return beta * torch.stack(terms).sum()
