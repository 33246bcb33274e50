"""How far the rows of a matrix are from orthogonal: penalties that serve as baselines for energies and training methods."""

import torch
from jaxtyping import Float
from torch import Tensor

from .numerics import upcast


def orthonormality(weight: Float[Tensor, "*batch neurons dim"]) -> Float[Tensor, ""]:
    r"""Compute ‖WWᵀ − I‖²_F, summed over a batch of matrices W: 0 if the neurons (rows) are orthonormal (5.5.1, C.2).

    >>> orthonormality(2 * torch.eye(3))
    tensor(27.)
    """
    gram = _compute_gram(weight)
    return (gram - torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)).square().sum()


def orthogonality(weight: Float[Tensor, "*batch neurons dim"]) -> Float[Tensor, ""]:
    r"""Compute ‖WWᵀ − diag(WWᵀ)‖²_F, summed over a batch of matrices W: 0 if the neurons (rows) are orthogonal.

    The lengths of the neurons do not need to be 1.

    >>> orthogonality(2 * torch.eye(3))
    tensor(0.)
    """
    gram = _compute_gram(weight)
    return (gram - torch.diag_embed(gram.diagonal(dim1=-2, dim2=-1))).square().sum()


def _compute_gram(weight: Tensor) -> Tensor:
    with torch.autocast(weight.device.type, enabled=False):
        weight = upcast(weight)
        return weight @ weight.transpose(-1, -2)
