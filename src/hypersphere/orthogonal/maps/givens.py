"""Givens rotations: a product of rotations in coordinate planes, one for each pair of columns and rows."""

from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from .map_precision import disable_autocast, refuse_second_order, skew, without_autocast
from .orthogonal_map import Map


@disable_autocast
def givens(x: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
    r"""Return the product of n(n − 1)/2 rotations in planes of neighboring coordinates, by the angles (x_ij − x_ji)/2.

    The rotation for the entry below the diagonal in row i and column j turns the coordinates i − 1 and i. The factors stand
    in the order in which Givens' elimination makes a matrix triangular, so every rotation (det R = +1) is reached. That
    order has 2n − 3 stages of rotations in separate planes (Sameh and Kuck, 1978), and each stage is computed at once.
    Needs no inverse, and R is orthogonal to rounding for any x.

    Args:
        x: square matrices; only their skew-symmetric part counts.

    Returns:
        The rotations, of the shape of ``x``.

    Raises:
        ValueError: if ``x`` does not consist of square floating-point matrices.

    >>> givens(torch.tensor([[0.0, -torch.pi / 6], [torch.pi / 6, 0.0]]))
    tensor([[ 0.8660, -0.5000],
            [ 0.5000,  0.8660]])
    """
    return _Givens.apply(x)  # type: ignore[no-any-return, no-untyped-call]


class Givens(Map):
    """:func:`givens` as a method; use it where an inverse is too expensive or not available, for small n.

    >>> r = Givens()(torch.randn(4, 4))
    >>> torch.allclose(r @ r.mT, torch.eye(4), atol=1e-5)
    True
    """

    function = staticmethod(givens)
    orthogonal = True

    def forward(self, raw: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
        """Return R."""
        return givens(raw)

    def identity(self, raw: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
        """Return X = 0, which is where weight decay pulls."""
        return torch.zeros_like(raw)


class _Givens(torch.autograd.Function):
    """R = G_0 G_1 ⋯ G_{S−1} with one G for each stage of rotations in separate planes.

    The backward pass keeps R and the angles only. It takes the stages off again one after the other: with P_s = G_s P_{s+1}
    and the gradient D_s of P_s, the gradient of an angle is the sum of D_s · dG_s/dθ P_{s+1}, where dG_s/dθ P_{s+1} is P_s
    turned by a right angle in that plane; then P_{s+1} = G_sᵀP_s and D_{s+1} = G_sᵀD_s.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        n = x.shape[-1]
        angles = skew(x)
        cos, sin = angles.cos(), angles.sin()
        result = torch.eye(n, dtype=x.dtype, device=x.device).repeat(*x.shape[:-2], 1, 1)
        for stage in _list_stages(n)[::-1]:
            _turn(result, stage, _pick(cos, stage), _pick(sin, stage))
        ctx.save_for_backward(result, cos, sin)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        refuse_second_order()
        result, cos, sin = ctx.saved_tensors
        product, slope, angles = result.clone(), gradient.clone(), torch.zeros_like(result)
        with without_autocast(gradient):
            for stage in _list_stages(result.shape[-1]):
                tops, bottoms = _split(product, stage)
                of_tops, of_bottoms = _split(slope, stage)
                found = (of_bottoms * tops - of_tops * bottoms).sum(-1)
                rows, columns = stage
                angles[..., rows, columns] = found
                for matrix in (product, slope):
                    _turn(matrix, stage, _pick(cos, stage), -_pick(sin, stage))
        return (angles - angles.mT) / 2


Stage: TypeAlias = tuple[list[int], list[int]]


def _list_stages(n: int) -> list[Stage]:
    """Return rows and columns of the entries of each stage, which turn the coordinates i − 1 and i for every row i."""
    stages = []
    for number in range(2 * n - 3):
        columns = list(range(max(0, number - n + 2), number // 2 + 1))
        stages.append(([n - 1 - number + 2 * j for j in columns], columns))
    return stages


def _pick(values: Tensor, stage: Stage) -> Tensor:
    rows, columns = stage
    return values[..., rows, columns].unsqueeze(-1)


def _split(matrix: Tensor, stage: Stage) -> tuple[Tensor, Tensor]:
    """Return views of the upper and lower row of every plane of a stage."""
    rows = stage[0]
    pairs = matrix[..., rows[0] - 1 : rows[-1] + 1, :].unflatten(-2, (-1, 2))
    return pairs[..., 0, :], pairs[..., 1, :]


def _turn(matrix: Tensor, stage: Stage, cos: Tensor, sin: Tensor) -> None:
    """Turn the rows of a matrix in place."""
    tops, bottoms = _split(matrix, stage)
    tops_turned = cos * tops - sin * bottoms
    bottoms.copy_(sin * tops + cos * bottoms)
    tops.copy_(tops_turned)
