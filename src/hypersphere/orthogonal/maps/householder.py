"""Householder reflections (7.3.3, F.1.2)."""

from jaxtyping import Float
from torch import Tensor

from .map_precision import upcast_squares
from .orthogonal_map import Unrolled
from .qr import SignedQ


@upcast_squares
def householder(x: Float[Tensor, "*batch n n"], *, last: bool = False) -> Float[Tensor, "*batch n n"]:
    r"""Return Q = H₁H₂⋯H_{n−1}, where H_j reflects the remaining part of column j onto +‖·‖e₁ (7.3, F.4, Algorithm 3).

    For a column that is already a positive multiple of e₁ the reflector of eq. 7.3 is 0/0; as in Algorithm 3, H_j is then
    I. ``last=True`` also reflects the remaining 1×1 block, which gives the n reflections of 7.3.3. R then has a positive
    diagonal, and Q equals that of :func:`~hypersphere.orthogonal.gram_schmidt` and depends continuously on x. With n − 1
    reflections only the sign of the last column differs. It is discontinuous at matrices for which one H_j is I.

    >>> householder(torch.tensor([[3.0, 1.0], [4.0, 1.0]]))
    tensor([[ 0.6000,  0.8000],
            [ 0.8000, -0.6000]])
    """
    return SignedQ.apply(x, not last)  # type: ignore[no-any-return, no-untyped-call]


class Householder(Unrolled):
    """:func:`householder` with ``last=True`` as a method, so that the map is continuous during training.

    It is the same map as :class:`GramSchmidt`, computed differently. Training with either gives the same network up to
    rounding.

    >>> Householder()(torch.tensor([[3.0, 1.0], [4.0, 1.0]]))
    tensor([[ 0.6000,  0.8000],
            [ 0.8000, -0.6000]])
    """

    function = staticmethod(householder)

    def forward(self, raw: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
        """Return R."""
        return householder(raw, last=True)
