"""The classic, modified and iterated Gram–Schmidt process (7.3.3, F.1.1)."""

import torch
from jaxtyping import Float
from torch import Tensor

from .map_precision import find_missing, upcast_squares
from .orthogonal_map import Unrolled
from .qr import SignedQ


@upcast_squares
def gram_schmidt(
    x: Float[Tensor, "*batch n n"], *, modified: bool = False, iterations: int = 1
) -> Float[Tensor, "*batch n n"]:
    r"""Orthogonalize the columns u_j of x: ẽ_j = u_j − Σ_{k<j} ⟨e_k, u_j⟩e_k, e_j = ẽ_j/‖ẽ_j‖ (F.1, Algorithm 1).

    The classic process (default) equals the Q of a QR decomposition with positive diagonal of R and is computed in this
    way, which is orthogonal up to rounding for any condition number. ``modified=True`` subtracts the projections one
    after the other (F.3). ``iterations=k`` repeats the projection of each column k times (Algorithm 2 with a fixed number
    of steps). Both loop over the columns and are slower. A column that is linearly dependent on the previous ones is
    replaced by a direction that completes the basis.

    >>> gram_schmidt(torch.tensor([[3.0, 1.0], [4.0, 1.0]]))
    tensor([[ 0.6000,  0.8000],
            [ 0.8000, -0.6000]])
    """
    if iterations < 1:
        raise ValueError(f"iterations must be an integer ≥ 1, got {iterations!r}")
    if modified or iterations > 1:
        return _orthogonalize_by_columns(x, modified, iterations)
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


def _orthogonalize_by_columns(x: Tensor, modified: bool, iterations: int) -> Tensor:
    lengths = torch.linalg.vector_norm(x.detach(), dim=-2)
    basis = x[..., :, :0]
    for j in range(x.shape[-1]):
        t = x[..., :, j : j + 1]
        for _ in range(iterations):
            t = _project_one_by_one(t, basis) if modified else t - basis @ (basis.mT @ t)
        basis = torch.cat([basis, _normalize_or_replace(t, basis.detach(), lengths)], -1)
    return basis


def _project_one_by_one(t: Tensor, basis: Tensor) -> Tensor:
    for e in basis.unbind(-1):
        e = e.unsqueeze(-1)
        t = t - e * (e * t).sum(-2, keepdim=True)
    return t


def _normalize_or_replace(t: Tensor, basis: Tensor, lengths: Tensor) -> Tensor:
    """Return t/‖t‖, or a unit vector orthogonal to the basis if t vanishes.

    The replacement is the standard basis vector with the smallest projection onto the basis, after orthogonalization. Its
    value replaces t in the forward pass; the gradient passes to t as if ‖t‖ were the longest of the lengths.
    """
    remaining = torch.linalg.vector_norm(t.detach(), dim=-2)
    absent, instead = find_missing(torch.cat([lengths, remaining], -1))
    least = basis.square().sum(-1).argmin(-1)
    replacement = torch.nn.functional.one_hot(least, t.shape[-2]).to(t.dtype).unsqueeze(-1)
    for _ in range(2):
        replacement = replacement - basis @ (basis.mT @ replacement)
    replacement = replacement / torch.linalg.vector_norm(replacement, dim=-2, keepdim=True) * instead.unsqueeze(-1)
    t = torch.where(absent[..., -1:].unsqueeze(-1), t - t.detach() + replacement, t)
    return t / torch.linalg.vector_norm(t, dim=-2, keepdim=True)
