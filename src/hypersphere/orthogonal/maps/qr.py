"""QR with a chosen sign for each column, and one backward for every map that is such a factor."""

from typing import Any

import torch
from torch import Tensor

from .map_precision import find_missing, refuse_second_order


class SignedQ(torch.autograd.Function):
    """Q of X = QR with a positive diagonal of R; ``reflections`` turns the last column as Algorithm 3 leaves it.

    With K = QᵀG the gradient of X is Q·Z·R⁻ᵀ, Z = the strictly lower part of K − Kᵀ. Householder's QR completes the
    basis of a singular X by itself; R's missing diagonal entries are replaced for the backward only.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, reflections: bool) -> Tensor:
        """Q, from LAPACK's packed reflectors."""
        packed, tau = torch.geqrf(x)
        signs = torch.where(packed.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(x.dtype)
        if reflections:
            signs = _as_reflected(signs, tau)
        q = torch.linalg.householder_product(packed, tau).mul_(signs.unsqueeze(-2))
        r = packed.triu().mul_(signs.unsqueeze(-1))
        diagonal = r.diagonal(dim1=-2, dim2=-1)
        absent, instead = find_missing(diagonal.abs())
        diagonal.copy_(torch.where(absent, instead, diagonal))
        ctx.save_for_backward(q, r)
        return q

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Q·Z·R⁻ᵀ."""
        q, r = ctx.saved_tensors
        refuse_second_order()
        with torch.autocast(gradient.device.type, enabled=False):
            k = q.mT @ gradient
            z = (k - k.mT).tril_(-1)
            return torch.linalg.solve_triangular(r.mT, q @ z, upper=False, left=False), None


def _as_reflected(signs: Tensor, tau: Tensor) -> Tensor:
    """Return the signs after H₁⋯H_{n−1}, each onto +‖x‖e₁ or idle: det Q counts the reflections, which fixes the last column."""
    first = torch.where(tau[..., :-1] == 0, 1, signs[..., :-1])
    return torch.cat([first, first.prod(-1, keepdim=True)], -1)
