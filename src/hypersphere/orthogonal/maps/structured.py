"""Matrices that are not orthogonal but have another structure (generalized OPT, F.6)."""

import torch
from jaxtyping import Float
from torch import Tensor

from .map_precision import skew
from .orthogonal_map import Map


class SymmetricPositive(Map):
    r"""R = LLᵀ, symmetric positive definite: every neuron stays within π/2 of where it was, vᵀRv > 0 (F.6).

    L is lower triangular with the exponential of X's diagonal on its own, so that R cannot become singular;
    X = 0 is the identity, where weight decay pulls.

    >>> SymmetricPositive()(torch.tensor([[0.0, 9.0], [1.0, 0.0]]))
    tensor([[1., 1.],
            [1., 2.]])
    """

    def forward(self, raw: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
        """Return LLᵀ."""
        lower = raw.tril(-1) + torch.diag_embed(raw.diagonal(dim1=-2, dim2=-1).exp())
        return lower @ lower.mT

    def freedom(self, n: int) -> int:
        """n(n + 1)/2."""
        return n * (n + 1) // 2


class Triangular(Map):
    """R = the lower (or upper) triangle of X (F.6); it starts from the identity.

    >>> Triangular(upper=True)(torch.ones(2, 2))
    tensor([[1., 1.],
            [0., 1.]])
    """

    def __init__(self, upper: bool = False):
        super().__init__()
        self.upper = upper

    def forward(self, raw: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
        """Return the triangle."""
        return raw.triu() if self.upper else raw.tril()

    def freedom(self, n: int) -> int:
        """n(n + 1)/2."""
        return n * (n + 1) // 2

    def extra_repr(self) -> str:
        """Which triangle."""
        return f"upper={self.upper}"


class Banded(Map):
    """R = X within ``width`` of the diagonal, 0 elsewhere (F.6); it starts from the identity.

    >>> Banded(1)(torch.ones(3, 3))
    tensor([[1., 1., 0.],
            [1., 1., 1.],
            [0., 1., 1.]])
    """

    def __init__(self, width: int = 1):
        super().__init__()
        if width < 0:
            raise ValueError(f"width must be an integer ≥ 0, got {width!r}")
        self.width = width

    def forward(self, raw: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
        """Return the band."""
        return raw.tril(self.width).triu(-self.width)

    def freedom(self, n: int) -> int:
        """The number of entries in the band."""
        w = min(self.width, n - 1)
        return n + w * (2 * n - w - 1)

    def extra_repr(self) -> str:
        """Describe the width."""
        return f"width={self.width}"


class Symmetric(Map):
    """R = (X + Xᵀ)/2, the symmetric part of X (F.6); it starts from the identity.

    >>> Symmetric()(torch.tensor([[1.0, 2.0], [0.0, 3.0]]))
    tensor([[1., 1.],
            [1., 3.]])
    """

    def forward(self, raw: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
        """Return the symmetric part."""
        return (raw + raw.mT) / 2

    def freedom(self, n: int) -> int:
        """n(n + 1)/2."""
        return n * (n + 1) // 2


class Skew(Map):
    """R = (X − Xᵀ)/2, the skew-symmetric part of X (F.6): every neuron is turned by a right angle, vᵀRv = 0.

    No X gives the identity, so ``start="identity"`` is refused; the usual start is X from N(0, 2/n), with which R keeps
    the length of a neuron on average. For odd n every such R is singular.

    >>> Skew()(torch.tensor([[1.0, 2.0], [0.0, 3.0]]))
    tensor([[ 0.,  1.],
            [-1.,  0.]])
    """

    def forward(self, raw: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
        """Return the skew-symmetric part."""
        return skew(raw)

    def start(
        self, raw: Float[Tensor, "*batch n n"], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch n n"]:
        """Draw entries from N(0, 2/n)."""
        return self.normal(raw, generator) * (2 / raw.shape[-1]) ** 0.5

    def freedom(self, n: int) -> int:
        """n(n − 1)/2."""
        return n * (n - 1) // 2


class Hessenberg(Map):
    """R = X with zeros below the first subdiagonal, or above the first superdiagonal (F.6); it starts from the identity.

    >>> Hessenberg()(torch.ones(3, 3))
    tensor([[1., 1., 1.],
            [1., 1., 1.],
            [0., 1., 1.]])
    """

    def __init__(self, upper: bool = True):
        super().__init__()
        self.upper = upper

    def forward(self, raw: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
        """Return the triangle and one more diagonal."""
        return raw.triu(-1) if self.upper else raw.tril(1)

    def freedom(self, n: int) -> int:
        """n(n + 1)/2 + n − 1."""
        return n * (n + 1) // 2 + n - 1

    def extra_repr(self) -> str:
        """Which triangle."""
        return f"upper={self.upper}"
