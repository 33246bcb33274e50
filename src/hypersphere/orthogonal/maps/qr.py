"""QR decomposition with a chosen sign per column, and its backward pass."""

from typing import Any

import torch
from torch import Tensor

from ...geometry import disable_autocast
from .map_precision import find_missing, refuse_second_order


class SignedQ(torch.autograd.Function):
    """Q of X = QR with a positive diagonal of R; with ``reflections`` the last column has the sign of Algorithm 3.

    The backward pass computes the gradient of X from the gradient G of Q: with K = QᵀG it is Q·Z·R⁻ᵀ, where Z is the
    strictly lower triangular part of K − Kᵀ. Householder QR completes the basis of a singular X; zero diagonal entries of
    R are replaced only for the backward pass.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, reflections: bool) -> Tensor:
        """Return Q, computed from LAPACK's packed reflectors."""
        packed, tau = torch.geqrf(x)
        signs = torch.where(packed.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(x.dtype)
        if reflections:
            signs = _choose_reflected_signs(signs, tau)
        q = torch.linalg.householder_product(packed, tau).mul_(signs.unsqueeze(-2))
        r = packed.triu().mul_(signs.unsqueeze(-1))
        diagonal = r.diagonal(dim1=-2, dim2=-1)
        absent, instead = find_missing(diagonal.abs())
        diagonal.copy_(torch.where(absent, instead, diagonal))
        ctx.save_for_backward(q, r)
        return q

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Return Q·Z·R⁻ᵀ."""
        q, r = ctx.saved_tensors
        refuse_second_order()
        with disable_autocast(gradient.device.type):
            k = q.mT @ gradient
            z = (k - k.mT).tril_(-1)
            return torch.linalg.solve_triangular(r.mT, q @ z, upper=False, left=False), None


def _choose_reflected_signs(signs: Tensor, tau: Tensor) -> Tensor:
    """Return the column signs of H₁⋯H_{n−1}, where each H_j reflects onto +‖x‖e₁ or is the identity.

    The number of reflections determines det Q and with it the sign of the last column.
    """
    first = torch.where(tau[..., :-1] == 0, 1, signs[..., :-1])
    return torch.cat([first, first.prod(-1, keepdim=True)], -1)
