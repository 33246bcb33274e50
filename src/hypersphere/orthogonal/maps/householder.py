"""Householder reflections (7.3.3, F.1.2)."""

from jaxtyping import Float
from torch import Tensor

from .map_precision import disable_autocast
from .orthogonal_map import Unrolled
from .qr import SignedQ


@disable_autocast
def householder(x: Float[Tensor, "*batch n n"], *, last: bool = False) -> Float[Tensor, "*batch n n"]:
    r"""Return Q = H₁H₂⋯H_{n−1}, where H_j reflects the rest of column j onto +‖·‖e₁ (7.3, F.4, Algorithm 3).

    The reflector of 7.3 is 0/0 for a column already along e₁; as in Algorithm 3 it needs none, H_j = I. ``last=True`` also
    reflects the 1×1 rest, n reflections as 7.3.3 counts them. Then R has a positive diagonal, Q is that of
    :func:`~hypersphere.orthogonal.gram_schmidt` and depends continuously on x. With n − 1 reflections only the sign of
    the last column differs, and it jumps where a column comes to lie along an axis and a reflection is saved.

    >>> householder(torch.tensor([[3.0, 1.0], [4.0, 1.0]]))
    tensor([[ 0.6000,  0.8000],
            [ 0.8000, -0.6000]])
    """
    return SignedQ.apply(x, not last)  # type: ignore[no-any-return, no-untyped-call]


class Householder(Unrolled):
    """:func:`householder` as a method, with the last reflection, so that training never meets the jump.

    With n reflections it is the map of :class:`GramSchmidt`, computed in another way: training with either gives the same
    network up to rounding.

    >>> Householder()(torch.tensor([[3.0, 1.0], [4.0, 1.0]]))
    tensor([[ 0.6000,  0.8000],
            [ 0.8000, -0.6000]])
    """

    function = staticmethod(householder)

    def forward(self, raw: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
        """Return R."""
        return householder(raw, last=True)
