"""Maps to matrices with a structure other than orthogonality (generalized OPT, F.6)."""

import torch
from jaxtyping import Float
from torch import Tensor

from .map_precision import get_skew_part
from .orthogonal_map import Map


class SymmetricPositive(Map):
    r"""R = LLᵀ, symmetric positive definite (F.6). Every neuron changes its direction by less than π/2, because vᵀRv > 0.

    L is the strictly lower triangle of X plus the exponential of its diagonal, so that R cannot become singular. X = 0
    gives the identity, to which weight decay pulls.

    >>> SymmetricPositive()(torch.tensor([[0.0, 9.0], [1.0, 0.0]]))
    tensor([[1., 1.],
            [1., 2.]])
    """

    def forward(self, raw: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
        """Return LLᵀ."""
        lower = raw.tril(-1) + torch.diag_embed(raw.diagonal(dim1=-2, dim2=-1).exp())
        return lower @ lower.mT

    def freedom(self, n: int) -> int:
        """Return n(n + 1)/2."""
        return n * (n + 1) // 2


class Triangular(Map):
    """R = lower (or upper) triangle of X (F.6), initialized with the identity.

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
        """Return n(n + 1)/2."""
        return n * (n + 1) // 2

    def extra_repr(self) -> str:
        """Describe the triangle."""
        return f"upper={self.upper}"


class Banded(Map):
    """R = X within ``width`` of the diagonal and 0 elsewhere (F.6), initialized with the identity.

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
        """Return the number of entries in the band."""
        w = min(self.width, n - 1)
        return n + w * (2 * n - w - 1)

    def extra_repr(self) -> str:
        """Describe the width."""
        return f"width={self.width}"


class Symmetric(Map):
    """R = (X + Xᵀ)/2, the symmetric part of X (F.6), initialized with the identity.

    >>> Symmetric()(torch.tensor([[1.0, 2.0], [0.0, 3.0]]))
    tensor([[1., 1.],
            [1., 3.]])
    """

    def forward(self, raw: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
        """Return the symmetric part."""
        return (raw + raw.mT) / 2

    def freedom(self, n: int) -> int:
        """Return n(n + 1)/2."""
        return n * (n + 1) // 2


class Skew(Map):
    """R = (X − Xᵀ)/2, the skew-symmetric part of X (F.6). Every neuron becomes orthogonal to itself, because vᵀRv = 0.

    No X gives the identity, so ``start="identity"`` raises an error. The usual initial X has entries from N(0, 2/n), with
    which R preserves the expected squared length of a neuron. For odd n every R is singular.

    >>> Skew()(torch.tensor([[1.0, 2.0], [0.0, 3.0]]))
    tensor([[ 0.,  1.],
            [-1.,  0.]])
    """

    def forward(self, raw: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
        """Return the skew-symmetric part."""
        return get_skew_part(raw)

    def start(
        self, raw: Float[Tensor, "*batch n n"], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch n n"]:
        """Return an X with entries from N(0, 2/n)."""
        return self.normal(raw, generator) * (2 / raw.shape[-1]) ** 0.5

    def freedom(self, n: int) -> int:
        """Return n(n − 1)/2."""
        return n * (n - 1) // 2


class Hessenberg(Map):
    """R = X with zeros below the first subdiagonal, or above the first superdiagonal (F.6), initialized with the identity.

    >>> Hessenberg()(torch.ones(3, 3))
    tensor([[1., 1., 1.],
            [1., 1., 1.],
            [0., 1., 1.]])
    """

    def __init__(self, upper: bool = True):
        super().__init__()
        self.upper = upper

    def forward(self, raw: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
        """Return the triangle and one additional diagonal."""
        return raw.triu(-1) if self.upper else raw.tril(1)

    def freedom(self, n: int) -> int:
        """Return n(n + 1)/2 + n − 1."""
        return n * (n + 1) // 2 + n - 1

    def extra_repr(self) -> str:
        """Describe the triangle."""
        return f"upper={self.upper}"
