"""The matrix exponential of a skew-symmetric matrix (7.3.4)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from .base import Map
from .newton_schulz import polish
from .precision import full_precision, skew

# numerator of the [6/6] Padé approximant; its error is about 2·10⁻¹³‖A‖¹³
_PADE = (1.0, 1 / 2, 5 / 44, 1 / 66, 1 / 792, 1 / 15840, 1 / 665280)


@full_precision
def exponential(x: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
    r"""R = exp(A) with A = (X − Xᵀ)/2, the skew part of x (7.3.4): a rotation, every one of them is reached.

    Scaling and squaring of a diagonal Padé approximant, which is itself orthogonal for a skew matrix; every squaring
    doubles its rounding error, so a Newton–Schulz step follows every fourth and the last. Autograd goes back through
    these few products, several times cheaper than the block-triangular rule of ``torch.linalg.matrix_exp``.

    >>> exponential(torch.tensor([[0.0, -torch.pi / 6], [torch.pi / 6, 0.0]]))
    tensor([[ 0.8660, -0.5000],
            [ 0.5000,  0.8660]])
    """
    a = skew(x)
    if (
        torch.compiler.is_compiling()
    ):  # a graph cannot choose the number of squarings from the data; this operator does inside
        return polish(torch.linalg.matrix_exp(a), 2)
    squarings = _squarings(a.detach())
    a = a / 2**squarings
    square = a @ a
    fourth = square @ square
    eye = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    even = _PADE[0] * eye + _PADE[2] * square + _PADE[4] * fourth + _PADE[6] * (fourth @ square)
    odd = a @ (_PADE[1] * eye + _PADE[3] * square + _PADE[5] * fourth)
    result = torch.linalg.solve(even - odd, even + odd)
    for i in range(squarings):
        result = result @ result
        if i % 4 == 3 or i == squarings - 1:
            result = polish(result, 1)
    return result


class Exponential(Map):
    """:func:`exponential` as a method."""

    function = staticmethod(exponential)
    orthogonal = True

    def forward(self, raw: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
        """R."""
        return exponential(raw)

    def identity(self, raw: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
        """X = 0, where weight decay pulls as well."""
        return torch.zeros_like(raw)


def _squarings(a: Tensor) -> int:
    """How often to halve A until the approximant is right to rounding; ‖A‖ ≤ ‖A‖_F/√2, for its singular values are pairs."""
    norm = float(torch.linalg.matrix_norm(a).max()) / math.sqrt(2) if a.numel() else 0.0
    enough = 2.0 if a.dtype == torch.float32 else 0.5
    return max(0, math.ceil(math.log2(norm / enough))) if 0 < norm < math.inf else 0
