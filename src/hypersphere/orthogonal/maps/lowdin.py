"""Löwdin's symmetric orthogonalization (7.3.3, F.1.3)."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ...geometry import disable_autocast
from .map_precision import describe_non_finite, find_missing, refuse_second_order, upcast_squares
from .newton_schulz import polar_gradient
from .orthogonal_map import Unrolled


@upcast_squares
def lowdin(x: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
    r"""Return X(XᵀX)^{−1/2} = WVᵀ from X = WΣVᵀ (F.10, F.14): the orthogonal matrix closest to x (F.15).

    The gradient divides by σ_i + σ_j, never by their difference, so repeated singular values are harmless.

    >>> lowdin(torch.tensor([[0.0, -2.0], [3.0, 0.0]]))
    tensor([[ 0., -1.],
            [ 1.,  0.]])
    """
    return _Polar.apply(x)  # type: ignore[no-any-return, no-untyped-call]


class Lowdin(Unrolled):
    """:func:`lowdin` as a method.

    >>> Lowdin()(torch.tensor([[0.0, -2.0], [3.0, 0.0]]))
    tensor([[ 0., -1.],
            [ 1.,  0.]])
    """

    function = staticmethod(lowdin)


class _Polar(torch.autograd.Function):
    """WVᵀ of X = WΣVᵀ. The backward pass computes the gradient of X with :func:`polar_gradient`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        w, sigma, vh = decompose(x)
        absent, instead = find_missing(sigma)
        ctx.save_for_backward(w, torch.where(absent, instead, sigma), vh)
        return w @ vh

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        w, sigma, vh = ctx.saved_tensors
        refuse_second_order()
        with disable_autocast(gradient.device.type):
            return polar_gradient(w, sigma, vh, gradient)


def decompose(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return W, Σ and Vᵀ of x = WΣVᵀ, computed in float64 if float32 fails.

    LAPACK's iteration in single precision may not converge if many singular values are nearly equal, as they are near the
    identity. For a non-finite x, LAPACK raises an error or returns NaN; this function always raises a ValueError.
    """
    try:
        w, sigma, vh = torch.linalg.svd(x)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        _refuse_non_finite(x)
        if x.dtype == torch.float64:
            raise
        w, sigma, vh = (part.to(x.dtype) for part in torch.linalg.svd(x.double()))
    # Checking the n singular values is much cheaper than checking x.
    if not torch.compiler.is_compiling() and not bool(sigma.isfinite().all()):
        _refuse_non_finite(x)
    return w, sigma, vh


def _refuse_non_finite(x: Tensor) -> None:
    if not bool(x.isfinite().all()):
        raise ValueError(f"x must hold finite numbers, got {describe_non_finite(x)}") from None
