"""Directions of many vectors at once, with the derivative by hand: the fast paths that divide by a norm.

:func:`~hypersphere.geometry.normalize` is right for every representable length and differentiable as often as one
likes, and costs several passes over its input. These functions make one pass where the lengths allow it, and are for
code that computes its own derivatives.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def directions(x: Float[Tensor, "*batch n d"]) -> tuple[Float[Tensor, "*batch n d"], Float[Tensor, "*batch n 1"]]:
    """x̂, which is 0 for a zero row, and ‖x‖, without a graph, in float32 or better.

    Where a square may overflow or vanish, entries are scaled by the largest first.

    >>> directions(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))[0]
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    x = x.detach().to(torch.promote_types(x.dtype, torch.float32)).contiguous()
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    least, most = torch.aminmax(length)
    if least > 1e-12 and most < 1e15:
        return x / length, length
    scale = x.abs().amax(-1, keepdim=True)
    x = x / scale.clamp_min(torch.finfo(x.dtype).tiny)
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x.div_(length.clamp_min(1 / 2)), length * scale


def through_direction(
    grad: Float[Tensor, "*batch n d"], x: Float[Tensor, "*batch n d"], length: Float[Tensor, "*batch n 1"]
) -> Float[Tensor, "*batch n d"]:
    """(I − x̂x̂ᵀ)g/‖x‖ from the gradient g by the directions x̂, in the memory of ``grad``; 0 for a zero row.

    The division is by no less than 10⁻²⁰, where float32 would overflow.

    >>> through_direction(torch.ones(1, 2), torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0]]))
    tensor([[0.0000, 0.5000]])
    """
    grad.addcmul_(x, torch.linalg.vecdot(grad, x).unsqueeze(-1), value=-1)
    return grad.mul_(torch.where(length > 0, 1 / length.clamp_min(1e-20), 0))


def gram_cosines(x: Float[Tensor, "batch n d"]) -> tuple[Float[Tensor, "batch n n"], Float[Tensor, "batch n"]]:
    """The cosines of all pairs of rows and 1/‖x‖ by one product; not to be trusted where 1/‖x‖ is not in 10^{±8}.

    >>> gram_cosines(torch.tensor([[[3.0, 4.0], [4.0, -3.0]]]))[1]
    tensor([[0.2000, 0.2000]])
    """
    cos = x @ x.mT
    inverse = cos.diagonal(dim1=1, dim2=2).rsqrt()
    return cos.mul_(inverse.unsqueeze(2)).mul_(inverse.unsqueeze(1)), inverse
