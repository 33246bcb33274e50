"""The matrix exponential of a skew-symmetric matrix (7.3.4)."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ...geometry import disable_autocast
from .map_precision import describe_non_finite, get_skew_part, refuse_second_order, upcast_squares
from .newton_schulz import polish
from .orthogonal_map import SkewMap

# Numerator of the [5/5] Padé approximant, which needs only A² and A⁴. Its error is about 10⁻¹⁰‖A‖¹¹.
_PADE = (1.0, 1 / 2, 1 / 9, 1 / 72, 1 / 1008, 1 / 30240)


@upcast_squares
def exponential(x: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
    r"""Return exp(A) with the skew-symmetric part A = (X − Xᵀ)/2 of x (7.3.4). Every rotation can be reached.

    Computed by scaling and squaring of a diagonal Padé approximant, which is orthogonal for a skew-symmetric matrix. Every
    squaring doubles the rounding error, so a Newton–Schulz step follows every fourth squaring and the last one. The
    hand-written gradient of the approximant needs seven products and one solve with the factors of the forward pass,
    which is several times cheaper than the block-triangular rule of ``torch.linalg.matrix_exp``.

    >>> exponential(torch.tensor([[0.0, -torch.pi / 6], [torch.pi / 6, 0.0]]))
    tensor([[ 0.8660, -0.5000],
            [ 0.5000,  0.8660]])
    """
    a = get_skew_part(x)
    if torch.compiler.is_compiling():  # the number of squarings depends on the data; matrix_exp chooses it internally
        return polish(torch.linalg.matrix_exp(a), 2)
    square, fourth = _compute_powers(a.detach())
    squarings = _count_squarings(a.detach(), fourth)
    scale = 0.5**squarings
    if squarings and not bool(fourth.isfinite().all()):  # a power overflowed
        square, fourth = _compute_powers(a.detach() * scale)
    else:
        square, fourth = square * scale**2, fourth * scale**4
    result: Tensor = _Pade.apply(a * scale, square, fourth)  # type: ignore[no-untyped-call]
    for i in range(squarings):
        result = result @ result
        if i % 4 == 3 or i == squarings - 1:
            result = polish(result, 1)
    return result


class Exponential(SkewMap):
    """:func:`exponential` as a method.

    >>> r = Exponential()(torch.randn(4, 4))
    >>> torch.allclose(r @ r.mT, torch.eye(4), atol=1e-5)
    True
    """

    function = staticmethod(exponential)


class _Pade(torch.autograd.Function):
    """The Padé approximant r = (V − U)⁻¹(V + U) with V = I + c₂A² + c₄A⁴ and U = AP, P = c₁I + c₃A² + c₅A⁴.

    For a skew-symmetric A, V is symmetric and U is skew-symmetric. The backward pass computes the gradient of A from the
    gradient G of r. With L = (V − U)⁻ᵀG, L is the gradient of the numerator V + U, and −Lrᵀ that of the denominator V − U.
    Hence V has the gradient L − Lrᵀ and U has L + Lrᵀ. The chain rule through P, A⁴ and A² then gives the gradient of A.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, square: Tensor, fourth: Tensor) -> Tensor:
        inner = torch.add(_PADE[3] * square, fourth, alpha=_PADE[5])
        inner.diagonal(dim1=-2, dim2=-1).add_(_PADE[1])
        odd = a @ inner
        even = torch.add(_PADE[2] * square, fourth, alpha=_PADE[4])
        even.diagonal(dim1=-2, dim2=-1).add_(_PADE[0])
        lu, pivots = torch.linalg.lu_factor(even - odd)
        result = torch.linalg.lu_solve(lu, pivots, even + odd)
        ctx.save_for_backward(a, square, inner, lu, pivots, result)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        refuse_second_order()
        a, square, inner, lu, pivots, result = ctx.saved_tensors
        with disable_autocast(gradient.device.type):
            numerator = torch.linalg.lu_solve(lu, pivots, gradient, adjoint=True)
            denominator = numerator @ result.mT
            d_even, d_odd = numerator - denominator, numerator + denominator
            d_inner = a.mT @ d_odd
            d_fourth = _PADE[4] * d_even + _PADE[5] * d_inner
            d_square = _PADE[2] * d_even + _PADE[3] * d_inner
            d_square += square.mT @ d_fourth + d_fourth @ square.mT
            return d_odd @ inner.mT + a.mT @ d_square + d_square @ a.mT, None, None


def _compute_powers(a: Tensor) -> tuple[Tensor, Tensor]:
    square = a @ a
    return square, square @ square


def _count_squarings(a: Tensor, fourth: Tensor) -> int:
    """Return the number of halvings of A for which the approximant is exact up to rounding.

    The singular values of a skew-symmetric matrix come in pairs, so ‖A‖ ≤ ‖A‖_F/√2 and ‖A‖⁴ ≤ ‖A⁴‖_F/√2. The second
    bound is much tighter for a large matrix without a dominant pair.
    """
    if not a.numel():
        return 0
    norm = float(torch.linalg.matrix_norm(a).max()) / math.sqrt(2)
    if not math.isfinite(norm):
        if not bool(a.isfinite().all()):
            raise ValueError(
                f"x must hold finite numbers with finite differences, got a skew part with {describe_non_finite(a)}"
            )
        largest = float(a.abs().max())  # the squares inside the norm overflowed
        norm = largest * float(torch.linalg.matrix_norm(a / largest).max()) / math.sqrt(2)
    power = float(torch.linalg.matrix_norm(fourth).max()) / math.sqrt(2)
    if math.isfinite(power):
        norm = min(norm, power**0.25)
    largest_accurate = 2.2 if a.dtype == torch.float32 else 0.25
    return max(0, math.ceil(math.log2(norm / largest_accurate))) if 0 < norm < math.inf else 0
