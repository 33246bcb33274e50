"""Canonical orthogonalization (7.3.3, F.1.3)."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .lowdin import decompose
from .map_precision import disable_autocast, refuse_second_order, without_autocast
from .orthogonal_map import Unrolled


@disable_autocast
def canonical(x: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
    r"""Return Λ = X V d^{−1/2} with the eigenvectors V and eigenvalues d of XᵀX (F.11): the left singular vectors of x.

    The columns are the principal axes of the columns of x, the longest first. A column of V has its largest entry positive,
    which decides the sign. The map jumps where two singular values cross, so it suits comparisons with Löwdin's symmetric
    orthogonalization rather than long training. Directions inside a repeated singular value have no derivative: their
    gradient is zero.

    Args:
        x: square matrices.

    Returns:
        Orthogonal matrices of the shape of ``x``.

    Raises:
        ValueError: if ``x`` does not consist of square floating-point matrices of finite numbers.

    >>> r = canonical(torch.tensor([[0.0, -2.0], [3.0, 0.0]]))
    >>> torch.allclose(r, torch.tensor([[0.0, -1.0], [1.0, 0.0]]))
    True
    """
    return _Canonical.apply(x)  # type: ignore[no-any-return, no-untyped-call]


class Canonical(Unrolled):
    """:func:`canonical` as a method; use it to compare with :class:`Lowdin`, which keeps the columns near those of X.

    >>> r = Canonical()(torch.tensor([[0.0, -2.0], [3.0, 0.0]]))
    >>> torch.allclose(r, torch.tensor([[0.0, -1.0], [1.0, 0.0]]))
    True
    """

    function = staticmethod(canonical)

    def forward(self, raw: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
        """Return R."""
        return canonical(raw)

    def identity(self, raw: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
        """Return a diagonal X that falls from 2 to 1: with equal entries R would have no derivative."""
        falling = torch.linspace(2, 1, raw.shape[-1], dtype=raw.dtype, device=raw.device)
        return torch.diag_embed(falling.expand(raw.shape[:-1])).contiguous()


class _Canonical(torch.autograd.Function):
    """W of X = WΣVᵀ. With K = WᵀG the gradient of X is W·[(K − Kᵀ)_ij σ_j/(σ_j² − σ_i²)]·Vᵀ."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        w, sigma, vh = decompose(x)
        largest = vh.gather(-1, vh.abs().argmax(-1, keepdim=True))
        sign = torch.where(largest < 0, -1.0, 1.0).to(x.dtype)
        w, vh = w * sign.mT, vh * sign
        ctx.save_for_backward(w, sigma, vh)
        return w

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        refuse_second_order()
        w, sigma, vh = ctx.saved_tensors
        with without_autocast(gradient):
            k = w.mT @ gradient
            longest = sigma[..., :1]
            relative = sigma / torch.where(
                longest > 1e-20, longest, 1
            )  # as in find_missing: shorter ones count as zero
            gap = relative.square().unsqueeze(-2) - relative.square().unsqueeze(-1)
            equal = (gap.abs() <= 4 * sigma.shape[-1] * torch.finfo(sigma.dtype).eps) | (longest <= 1e-20).unsqueeze(-1)
            factor = torch.where(equal, 0, relative.unsqueeze(-2) / torch.where(equal, 1, gap))
            return w @ ((k - k.mT) * factor) @ vh / torch.where(longest > 1e-20, longest, 1).unsqueeze(-1)
