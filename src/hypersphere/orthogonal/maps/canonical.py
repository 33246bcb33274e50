"""Canonical orthogonalization (7.3.3, F.1.3)."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ...geometry import disable_autocast
from .lowdin import decompose
from .map_precision import refuse_second_order, upcast_squares
from .orthogonal_map import Unrolled


@upcast_squares
def canonical(x: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
    r"""Return Λ = X V d^{−1/2} with the eigenvectors V and eigenvalues d of XᵀX (F.11): the left singular vectors of x.

    The columns of Λ are the principal axes of the columns of x, sorted by decreasing length. Signs are chosen such that
    the largest entry of every column of V is positive. The map is discontinuous where two singular values are equal, so it
    is suitable for comparisons with Löwdin's symmetric orthogonalization, but not for long training. It is not
    differentiable at repeated singular values; the gradient between their directions is set to zero.

    Args:
        x: Square matrices.

    Returns:
        Orthogonal matrices with the shape of ``x``.

    Raises:
        ValueError: If ``x`` does not consist of square floating-point matrices with finite entries.

    >>> r = canonical(torch.tensor([[0.0, -2.0], [3.0, 0.0]]))
    >>> torch.allclose(r, torch.tensor([[0.0, -1.0], [1.0, 0.0]]))
    True
    """
    return _Canonical.apply(x)  # type: ignore[no-any-return, no-untyped-call]


class Canonical(Unrolled):
    """:func:`canonical` as a method. Use it for comparisons with :class:`Lowdin`, whose columns stay close to those of X.

    >>> r = Canonical()(torch.tensor([[0.0, -2.0], [3.0, 0.0]]))
    >>> torch.allclose(r, torch.tensor([[0.0, -1.0], [1.0, 0.0]]))
    True
    """

    function = staticmethod(canonical)

    def identity(self, raw: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
        """Return a diagonal X with entries from 2 to 1. With equal entries the map would not be differentiable."""
        falling = torch.linspace(2, 1, raw.shape[-1], dtype=raw.dtype, device=raw.device)
        return torch.diag_embed(falling.expand(raw.shape[:-1])).contiguous()


class _Canonical(torch.autograd.Function):
    """W of X = WΣVᵀ.

    The backward pass computes the gradient of X from the gradient G of W: with K = WᵀG it is
    W·[(K − Kᵀ)_ij σ_j/(σ_j² − σ_i²)]·Vᵀ, with zero entries where σ_i = σ_j up to rounding.
    """

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
        with disable_autocast(gradient.device.type):
            k = w.mT @ gradient
            longest = sigma[..., :1]
            # as in find_missing, lengths up to 1e-20 count as zero
            relative = sigma / torch.where(longest > 1e-20, longest, 1)
            gap = relative.square().unsqueeze(-2) - relative.square().unsqueeze(-1)
            equal = (gap.abs() <= 4 * sigma.shape[-1] * torch.finfo(sigma.dtype).eps) | (longest <= 1e-20).unsqueeze(-1)
            factor = torch.where(equal, 0, relative.unsqueeze(-2) / torch.where(equal, 1, gap))
            return w @ ((k - k.mT) * factor) @ vh / torch.where(longest > 1e-20, longest, 1).unsqueeze(-1)
