"""Newton–Schulz iteration: the polar factor by matrix products alone."""

import torch
from jaxtyping import Float
from torch import Tensor

from .map_precision import full_precision


@full_precision
def newton_schulz(x: Float[Tensor, "*batch n n"], steps: int = 30) -> Float[Tensor, "*batch n n"]:
    r"""X ← X(3I − XᵀX)/2, from X/‖X‖_F: tends to :func:`~hypersphere.orthogonal.lowdin` of a non-singular x.

    Each step multiplies a small singular value by 1.5 and squares the distance of a large one from 1, so a condition κ
    takes about log κ/log 1.5 + 5 steps; 30 do for κ ≤ 10⁴. A singular direction stays where it is: zero.

    >>> newton_schulz(torch.tensor([[0.0, -2.0], [3.0, 0.0]]))
    tensor([[ 0., -1.],
            [ 1.,  0.]])
    """
    if steps < 1:
        raise ValueError(f"steps must be an integer ≥ 1, got {steps!r}")
    # largest singular value ≤ ‖X‖_F; the scales are constants to autograd, the limit does not depend on them
    largest = x.detach().abs().amax((-2, -1), keepdim=True)
    x = x / torch.where(largest > 0, largest, 1)
    length = torch.linalg.matrix_norm(x.detach(), keepdim=True)
    return polish(x / torch.where(length > 0, length, 1), steps)


def polish(x: Tensor, steps: int) -> Tensor:
    """The iteration alone, for matrices with singular values below √3; two steps restore a nearly orthogonal one."""
    for _ in range(steps):
        x = 1.5 * x - 0.5 * (x @ (x.mT @ x))
    return x
