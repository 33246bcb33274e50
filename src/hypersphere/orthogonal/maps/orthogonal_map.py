"""The interface of maps from a free square matrix to the matrix R that acts on a layer's neurons."""

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
    """A map from a free matrix X to R; a new one defines ``forward`` and overrides what else differs.

    ``forward(raw)`` is R; ``act(raw, rows)`` is R v for every row v, and may avoid R or, for a nonlinear T(v) (F.35),
    may not have one. ``identity`` and ``start`` give the X that training begins from.

    >>> class Polar(Map):
    ...     orthogonal = True
    ...     def forward(self, raw):
    ...         return hs.orthogonal.lowdin(raw)
    >>> hs.orthogonal.overparameterize(torch.nn.Linear(4, 2), Polar())(torch.zeros(1, 4)).shape
    torch.Size([1, 2])
    """

    function: ClassVar[Callable[..., Tensor] | None] = None  # the pure function that this is the twin of
    orthogonal: ClassVar[bool] = False

    def forward(self, raw: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
        """Return R for X."""
        raise TypeError(f"{type(self).__name__} must define forward(raw)")

    def act(
        self, raw: Float[Tensor, "*batch n n"], rows: Float[Tensor, "*batch neurons n"]
    ) -> Float[Tensor, "*batch neurons n"]:
        """Return R v for every row v."""
        return rows @ self(raw).mT

    def identity(self, raw: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
        """Return an X of the same shape with R = I: the identity matrix or 0."""
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
        """Return the X that training usually starts from: that of the identity unless a method overrides it."""
        return self.identity(raw)

    def normal(
        self, raw: Float[Tensor, "*batch n n"], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch n n"]:
        """Return standard normal entries, from which Liu (2020, 7.5.3 and F.3) starts every method."""
        return torch.randn(raw.shape, generator=generator, dtype=raw.dtype, device=raw.device)

    def freedom(self, n: int) -> int:
        """Return the dimension of the set that R moves in."""
        return n * (n - 1) // 2 if self.orthogonal else n * n


# A real union, not a quoted one: settings resolve it to know that a map may be given on the command line.
MapLike: TypeAlias = Method | Map | type[Map] | Callable[[Tensor], Tensor]


class Unrolled(Map):
    """A method that orthogonalizes X itself; it starts from N(0, 1) (7.5.3, F.3)."""

    orthogonal = True

    def start(
        self, raw: Float[Tensor, "*batch n n"], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch n n"]:
        """Return standard normal entries."""
        return self.normal(raw, generator)


class CustomMap(Map):
    """A user's own map, a callable on ``(…, n, n)``; a module keeps its parameters."""

    def __init__(self, function: Callable[[Tensor], Tensor]):
        super().__init__()
        self.map = function

    def forward(self, raw: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
        """Return the value of the callable for X."""
        return self.map(raw)

    def start(
        self, raw: Float[Tensor, "*batch n n"], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch n n"]:
        """Return X of the identity if I or 0 gives it, otherwise N(0, 1)."""
        try:
            return self.identity(raw)
        except ValueError:
            return self.normal(raw, generator)


class Free(Map):
    """R = X: trained by :class:`~hypersphere.orthogonal.OGD` (7.3.5), with a penalty (7.3.6), or freely (UPT, 7.5.1).

    ``by`` says what keeps R orthogonal: ``"ogd"``, ``"regularized"``, or nothing, ``"unconstrained"``.

    >>> Free("ogd").freedom(4), Free("unconstrained").freedom(4)
    (6, 16)
    """

    def __init__(self, by: Literal["ogd", "regularized", "unconstrained"] = "unconstrained"):
        super().__init__()
        if by not in (kinds := ("ogd", "regularized", "unconstrained")):
            raise ValueError(f"by must be one of {', '.join(kinds)}, got {by!r}")
        self.by = by

    def forward(self, raw: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
        """Return X itself."""
        return raw

    def normal(
        self, raw: Float[Tensor, "*batch n n"], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch n n"]:
        """Return standard normal entries; for OGD, which needs an orthogonal start, their orthogonal factor."""
        x = super().normal(raw, generator)
        return _random(x) if self.by == "ogd" else x

    def freedom(self, n: int) -> int:
        """Return n(n − 1)/2 if the optimizer keeps R orthogonal, otherwise n²."""
        return n * (n - 1) // 2 if self.by == "ogd" else n * n

    def extra_repr(self) -> str:
        """Describe what keeps R orthogonal."""
        return f"by={self.by!r}"


def _random(x: Tensor) -> Tensor:
    """Return the orthogonal factor of a Gaussian matrix, with the signs that make it uniform among orthogonal matrices."""
    q, r = torch.linalg.qr(x)
    return q * torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(x.dtype).unsqueeze(-2)
