"""Products of Givens rotations, one for each entry below the diagonal."""

from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from ...geometry import disable_autocast
from .map_precision import get_skew_part, refuse_second_order, upcast_squares
from .orthogonal_map import SkewMap


@upcast_squares
def givens(x: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
    r"""Return the product of n(n − 1)/2 rotations in planes of adjacent coordinates, with the angles (x_ij − x_ji)/2.

    The entry in row i and column j below the diagonal is the angle of a rotation of the coordinates i − 1 and i. The
    factors have the order in which Givens elimination makes a matrix triangular, so every rotation (det R = +1) can be
    reached. This order consists of 2n − 3 stages of rotations in disjoint planes (Sameh and Kuck, 1978), and each stage is
    computed at once. No inverse is needed, and R is orthogonal up to rounding for any x.

    Args:
        x: Square matrices. The result depends only on their skew-symmetric parts.

    Returns:
        The rotations, with the shape of ``x``.

    Raises:
        ValueError: If ``x`` does not consist of square floating-point matrices.

    >>> givens(torch.tensor([[0.0, -torch.pi / 6], [torch.pi / 6, 0.0]]))
    tensor([[ 0.8660, -0.5000],
            [ 0.5000,  0.8660]])
    """
    return _Givens.apply(x)  # type: ignore[no-any-return, no-untyped-call]


class Givens(SkewMap):
    """:func:`givens` as a method. Use it for small n if an inverse is too expensive or not available.

    >>> r = Givens()(torch.randn(4, 4))
    >>> torch.allclose(r @ r.mT, torch.eye(4), atol=1e-5)
    True
    """

    function = staticmethod(givens)


class _Givens(torch.autograd.Function):
    """R = G_0 G_1 ⋯ G_{S−1} with one G per stage of rotations in disjoint planes.

    The backward pass computes the gradients of all angles from R, the angles and the gradient of R; it stores no
    intermediate product. Let P_s = G_s P_{s+1} with P_0 = R, and let D_s be the gradient of P_s. The gradient of an angle
    of stage s is the sum of the entries of D_s ∘ (dG_s/dθ P_{s+1}), where dG_s/dθ P_{s+1} is P_s rotated by 90° in the
    plane of θ. The recursion P_{s+1} = G_sᵀP_s and D_{s+1} = G_sᵀD_s then removes the stage.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        n = x.shape[-1]
        angles = get_skew_part(x)
        cos, sin = angles.cos(), angles.sin()
        result = torch.eye(n, dtype=x.dtype, device=x.device).repeat(*x.shape[:-2], 1, 1)
        for stage in _list_stages(n)[::-1]:
            _rotate_rows(result, stage, _pick_entries(cos, stage), _pick_entries(sin, stage))
        ctx.save_for_backward(result, cos, sin)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        refuse_second_order()
        result, cos, sin = ctx.saved_tensors
        product, slope, angles = result.clone(), gradient.clone(), torch.zeros_like(result)
        with disable_autocast(gradient.device.type):
            for stage in _list_stages(result.shape[-1]):
                tops, bottoms = _split_planes(product, stage)
                slope_tops, slope_bottoms = _split_planes(slope, stage)
                stage_gradient = (slope_bottoms * tops - slope_tops * bottoms).sum(-1)
                rows, columns = stage
                angles[..., rows, columns] = stage_gradient
                for matrix in (product, slope):
                    _rotate_rows(matrix, stage, _pick_entries(cos, stage), -_pick_entries(sin, stage))
        return (angles - angles.mT) / 2


Stage: TypeAlias = tuple[list[int], list[int]]


def _list_stages(n: int) -> list[Stage]:
    """Return the rows and columns of the entries of each stage. Row i rotates the coordinates i − 1 and i."""
    stages = []
    for number in range(2 * n - 3):
        columns = list(range(max(0, number - n + 2), number // 2 + 1))
        stages.append(([n - 1 - number + 2 * j for j in columns], columns))
    return stages


def _pick_entries(values: Tensor, stage: Stage) -> Tensor:
    rows, columns = stage
    return values[..., rows, columns].unsqueeze(-1)


def _split_planes(matrix: Tensor, stage: Stage) -> tuple[Tensor, Tensor]:
    """Return views of the rows i − 1 and of the rows i of all planes of a stage."""
    rows = stage[0]
    pairs = matrix[..., rows[0] - 1 : rows[-1] + 1, :].unflatten(-2, (-1, 2))
    return pairs[..., 0, :], pairs[..., 1, :]


def _rotate_rows(matrix: Tensor, stage: Stage, cos: Tensor, sin: Tensor) -> None:
    """Rotate the rows of a matrix in the planes of a stage, in place."""
    tops, bottoms = _split_planes(matrix, stage)
    rotated_tops = cos * tops - sin * bottoms
    bottoms.copy_(sin * tops + cos * bottoms)
    tops.copy_(rotated_tops)
