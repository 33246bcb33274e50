"""The Gram–Schmidt process: classic, modified and iterated (7.3.3, F.1.1)."""

import torch
from jaxtyping import Float
from torch import Tensor

from .map_precision import disable_autocast, find_missing
from .orthogonal_map import Unrolled
from .qr import SignedQ


@disable_autocast
def gram_schmidt(
    x: Float[Tensor, "*batch n n"], *, modified: bool = False, iterations: int = 1
) -> Float[Tensor, "*batch n n"]:
    r"""Orthogonalize the columns u_j of x: ẽ_j = u_j − Σ_{k<j} ⟨e_k, u_j⟩e_k, e_j = ẽ_j/‖ẽ_j‖ (F.1, Algorithm 1).

    The classic process (default) is the Q of QR with a positive diagonal of R, and is computed so: the same map in exact
    arithmetic, orthogonal to rounding whatever the condition. ``modified=True`` unrolls the projections one after the
    other (F.3), ``iterations=k`` repeats the projection of each column k times (Algorithm 2 with a fixed number of
    steps); both are loops over the columns, for their semantics, not for speed. A column that depends on the earlier
    ones is completed to a basis.

    >>> gram_schmidt(torch.tensor([[3.0, 1.0], [4.0, 1.0]]))
    tensor([[ 0.6000,  0.8000],
            [ 0.8000, -0.6000]])
    """
    if iterations < 1:
        raise ValueError(f"iterations must be an integer ≥ 1, got {iterations!r}")
    if modified or iterations > 1:
        return _orthogonalize(x, modified, iterations)
    return SignedQ.apply(x, False)  # type: ignore[no-any-return, no-untyped-call]


class GramSchmidt(Unrolled):
    """:func:`gram_schmidt` as a method.

    >>> GramSchmidt(modified=True)(torch.tensor([[3.0, 1.0], [4.0, 1.0]]))
    tensor([[ 0.6000,  0.8000],
            [ 0.8000, -0.6000]])
    """

    function = staticmethod(gram_schmidt)

    def __init__(self, modified: bool = False, iterations: int = 1):
        super().__init__()
        self.modified, self.iterations = modified, iterations

    def forward(self, raw: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
        """Return R."""
        return gram_schmidt(raw, modified=self.modified, iterations=self.iterations)

    def extra_repr(self) -> str:
        """Describe the process."""
        return f"modified={self.modified}, iterations={self.iterations}"


def _orthogonalize(x: Tensor, modified: bool, iterations: int) -> Tensor:
    lengths = torch.linalg.vector_norm(x.detach(), dim=-2)
    basis = x[..., :, :0]
    for j in range(x.shape[-1]):
        t = x[..., :, j : j + 1]
        for _ in range(iterations):
            t = _one_by_one(t, basis) if modified else t - basis @ (basis.mT @ t)
        basis = torch.cat([basis, _direction(t, basis.detach(), lengths)], -1)
    return basis


def _one_by_one(t: Tensor, basis: Tensor) -> Tensor:
    for e in basis.unbind(-1):
        e = e.unsqueeze(-1)
        t = t - e * (e * t).sum(-2, keepdim=True)
    return t


def _direction(t: Tensor, basis: Tensor, lengths: Tensor) -> Tensor:
    """t/‖t‖; where nothing of t is left, the standard vector that the basis covers least, orthogonalized, joins it first."""
    own = torch.linalg.vector_norm(t.detach(), dim=-2)
    absent, instead = find_missing(torch.cat([lengths, own], -1))
    least = basis.square().sum(-1).argmin(-1)
    free = torch.nn.functional.one_hot(least, t.shape[-2]).to(t.dtype).unsqueeze(-1)
    for _ in range(2):
        free = free - basis @ (basis.mT @ free)
    free = free / torch.linalg.vector_norm(free, dim=-2, keepdim=True) * instead.unsqueeze(-1)
    t = torch.where(absent[..., -1:].unsqueeze(-1), t - t.detach() + free, t)
    return t / torch.linalg.vector_norm(t, dim=-2, keepdim=True)
