"""The matrix exponential of a skew-symmetric matrix (7.3.4)."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .map_precision import describe_non_finite, disable_autocast, refuse_second_order, skew, without_autocast
from .newton_schulz import polish
from .orthogonal_map import Map

# numerator of the [5/5] Padé approximant, whose error is about 10⁻¹⁰‖A‖¹¹; it needs A² and A⁴ only
_PADE = (1.0, 1 / 2, 1 / 9, 1 / 72, 1 / 1008, 1 / 30240)


@disable_autocast
def exponential(x: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
    r"""Return exp(A) with A = (X − Xᵀ)/2, the skew part of x (7.3.4): a rotation, every one of them is reached.

    Scaling and squaring of a diagonal Padé approximant, which is itself orthogonal for a skew matrix; every squaring
    doubles its rounding error, so a Newton–Schulz step follows every fourth and the last. The approximant's gradient is
    written by hand: seven products and one solve with the factors of the forward pass, several times cheaper than the
    block-triangular rule of ``torch.linalg.matrix_exp``.

    >>> exponential(torch.tensor([[0.0, -torch.pi / 6], [torch.pi / 6, 0.0]]))
    tensor([[ 0.8660, -0.5000],
            [ 0.5000,  0.8660]])
    """
    a = skew(x)
    if (
        torch.compiler.is_compiling()
    ):  # a graph cannot choose the number of squarings from the data; this operator does inside
        return polish(torch.linalg.matrix_exp(a), 2)
    square, fourth = _powers(a.detach())
    squarings = _squarings(a.detach(), fourth)
    scale = 0.5**squarings
    if squarings and not bool(fourth.isfinite().all()):  # a power left the range of its precision
        square, fourth = _powers(a.detach() * scale)
    else:
        square, fourth = square * scale**2, fourth * scale**4
    result: Tensor = _Pade.apply(a * scale, square, fourth)  # type: ignore[no-untyped-call]
    for i in range(squarings):
        result = result @ result
        if i % 4 == 3 or i == squarings - 1:
            result = polish(result, 1)
    return result


class Exponential(Map):
    """:func:`exponential` as a method.

    >>> r = Exponential()(torch.randn(4, 4))
    >>> torch.allclose(r @ r.mT, torch.eye(4), atol=1e-5)
    True
    """

    function = staticmethod(exponential)
    orthogonal = True

    def forward(self, raw: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
        """Return R."""
        return exponential(raw)

    def identity(self, raw: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
        """Return X = 0, which is where weight decay pulls."""
        return torch.zeros_like(raw)


class _Pade(torch.autograd.Function):
    """r = D⁻¹Dᵀ with D = V − U, V = I + c₂A² + c₄A⁴ symmetric and U = AP, P = c₁I + c₃A² + c₅A⁴, skew for a skew A."""

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
        with without_autocast(gradient):
            upper = torch.linalg.lu_solve(lu, pivots, gradient, adjoint=True)  # of V + U; −upper·rᵀ is that of V − U
            lower = upper @ result.mT
            even, odd = upper - lower, upper + lower
            of_inner = a.mT @ odd
            of_fourth = _PADE[4] * even + _PADE[5] * of_inner
            of_square = _PADE[2] * even + _PADE[3] * of_inner
            of_square += square.mT @ of_fourth + of_fourth @ square.mT
            return odd @ inner.mT + a.mT @ of_square + of_square @ a.mT, None, None


def _powers(a: Tensor) -> tuple[Tensor, Tensor]:
    square = a @ a
    return square, square @ square


def _squarings(a: Tensor, fourth: Tensor) -> int:
    """Return how often to halve A until the approximant is exact to rounding.

    The singular values of a skew matrix are pairs, so ‖A‖ ≤ ‖A‖_F/√2 and ‖A‖⁴ ≤ ‖A⁴‖_F/√2; the second is far smaller for
    a large matrix without a dominant pair.
    """
    if not a.numel():
        return 0
    norm = float(torch.linalg.matrix_norm(a).max()) / math.sqrt(2)
    if not math.isfinite(norm):
        if not bool(a.isfinite().all()):
            raise ValueError(
                f"x must hold finite numbers with finite differences, got a skew part with {describe_non_finite(a)}"
            )
        largest = float(a.abs().max())  # the squares inside the norm overflowed, those of A/largest cannot
        norm = largest * float(torch.linalg.matrix_norm(a / largest).max()) / math.sqrt(2)
    power = float(torch.linalg.matrix_norm(fourth).max()) / math.sqrt(2)
    if math.isfinite(power):
        norm = min(norm, power**0.25)
    enough = 2.2 if a.dtype == torch.float32 else 0.25
    return max(0, math.ceil(math.log2(norm / enough))) if 0 < norm < math.inf else 0
