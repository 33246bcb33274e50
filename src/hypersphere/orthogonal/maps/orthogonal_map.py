"""The interface of maps from an unconstrained square matrix X to the matrix R that rotates the neurons of a layer."""

from collections.abc import Callable
from typing import ClassVar, Literal, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn

Method: TypeAlias = Literal[
    "cayley",
    "gram_schmidt",
    "householder",
    "lowdin",
    "canonical",
    "exponential",
    "givens",
    "ogd",
    "regularized",
    "unconstrained",
]


class Map(nn.Module):
    """A map from an unconstrained square matrix X to R.

    A subclass defines ``forward(raw)``, which returns R, or ``function``, and overrides other methods where it differs.
    ``act(raw, rows)`` returns R v for every row v. It may avoid computing R, or implement a nonlinear T(v) (F.35) that has
    no R. ``identity``, ``start`` and ``normal`` return initial values of X.

    >>> class Polar(Map):
    ...     orthogonal = True
    ...     def forward(self, raw):
    ...         return hs.orthogonal.lowdin(raw)
    >>> hs.orthogonal.overparameterize(torch.nn.Linear(4, 2), Polar())(torch.zeros(1, 4)).shape
    torch.Size([1, 2])
    """

    function: ClassVar[Callable[..., Tensor] | None] = None  # the pure function that this class wraps
    orthogonal: ClassVar[bool] = False

    def forward(self, raw: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
        """Return R for X = ``raw``, by default the value of ``function``."""
        function = type(self).function
        if function is None:
            raise TypeError(f"{type(self).__name__} must define forward(raw)")
        return function(raw)

    def act(
        self, raw: Float[Tensor, "*batch n n"], rows: Float[Tensor, "*batch neurons n"]
    ) -> Float[Tensor, "*batch neurons n"]:
        """Return R v for every row v."""
        return rows @ self(raw).mT

    def identity(self, raw: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
        """Return an X of the same shape with R = I. The identity matrix and 0 are tried."""
        eye = torch.eye(raw.shape[-1], dtype=raw.dtype, device=raw.device).expand(raw.shape)
        for candidate in (eye, torch.zeros_like(raw)):
            with torch.no_grad():
                if torch.allclose(self(candidate), eye, atol=1e-6):
                    return candidate.clone()
        raise ValueError(
            f'{self!r} gives the identity neither at I nor at 0: define identity(raw), or use start="usual"'
        )

    def start(
        self, raw: Float[Tensor, "*batch n n"], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch n n"]:
        """Return the usual initial X, by default the X with R = I."""
        return self.identity(raw)

    def normal(
        self, raw: Float[Tensor, "*batch n n"], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch n n"]:
        """Return an X with entries from N(0, 1), the initialization of all methods in Liu (2020), 7.5.3 and F.3."""
        return torch.randn(raw.shape, generator=generator, dtype=raw.dtype, device=raw.device)

    def freedom(self, n: int) -> int:
        """Return the dimension of the set of possible R."""
        return n * (n - 1) // 2 if self.orthogonal else n * n


# Not a quoted annotation, because settings resolve this union to accept a map on the command line.
MapLike: TypeAlias = Method | Map | type[Map] | Callable[[Tensor], Tensor]


class Unrolled(Map):
    """A method that orthogonalizes X; its usual initial X has entries from N(0, 1) (7.5.3, F.3)."""

    orthogonal = True

    def start(
        self, raw: Float[Tensor, "*batch n n"], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch n n"]:
        """Return an X with entries from N(0, 1)."""
        return self.normal(raw, generator)


class SkewMap(Map):
    """A method whose R depends on the skew-symmetric part of X. The initial X is 0, to which weight decay pulls."""

    orthogonal = True

    def identity(self, raw: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
        """Return X = 0."""
        return torch.zeros_like(raw)


class CustomMap(Map):
    """A user-defined map, given as a callable on ``(…, n, n)``. The parameters of a module are trained as well."""

    def __init__(self, function: Callable[[Tensor], Tensor]):
        super().__init__()
        self.map = function

    def forward(self, raw: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
        """Return the result of the callable for X."""
        return self.map(raw)

    def start(
        self, raw: Float[Tensor, "*batch n n"], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch n n"]:
        """Return I or 0 if the callable maps it to the identity, otherwise entries from N(0, 1)."""
        try:
            return self.identity(raw)
        except ValueError:
            return self.normal(raw, generator)


class Free(Map):
    """The map R = X, trained by :class:`~hypersphere.orthogonal.OGD` (7.3.5), with a penalty (7.3.6) or freely (UPT, 7.5.1).

    Args:
        by: How R is kept orthogonal: ``"ogd"``, ``"regularized"`` or, if it is not, ``"unconstrained"``.

    >>> Free("ogd").freedom(4), Free("unconstrained").freedom(4)
    (6, 16)
    """

    def __init__(self, by: Literal["ogd", "regularized", "unconstrained"] = "unconstrained"):
        super().__init__()
        if by not in (kinds := ("ogd", "regularized", "unconstrained")):
            raise ValueError(f"by must be one of {', '.join(kinds)}, got {by!r}")
        self.by = by

    def forward(self, raw: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
        """Return X."""
        return raw

    def normal(
        self, raw: Float[Tensor, "*batch n n"], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch n n"]:
        """Return an X with entries from N(0, 1), orthogonalized for OGD, which must start from an orthogonal matrix."""
        x = super().normal(raw, generator)
        return _orthogonalize_gaussian(x) if self.by == "ogd" else x

    def freedom(self, n: int) -> int:
        """Return n(n − 1)/2 for OGD, otherwise n²."""
        return n * (n - 1) // 2 if self.by == "ogd" else n * n

    def extra_repr(self) -> str:
        """Describe how R is kept orthogonal."""
        return f"by={self.by!r}"


def _orthogonalize_gaussian(x: Tensor) -> Tensor:
    """Return the Q of a Gaussian matrix x = QR with positive diagonal of R, which is a uniform random orthogonal matrix."""
    q, r = torch.linalg.qr(x)
    return q * torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(x.dtype).unsqueeze(-2)
