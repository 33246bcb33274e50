"""Division of images into queries and gallery."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor


class QueryGallery(NamedTuple):
    """Two masks over the same images; an image may be both, and then it is never compared with itself."""

    queries: Bool[Tensor, "n"]
    gallery: Bool[Tensor, "n"]

    def are_compared(self, first: Any, second: Any, *, outer: bool = False) -> Bool[Tensor, "..."]:
        """Return whether of two images one is a query and the other in the gallery; ``outer`` asks it of every two."""
        (q1, g1), (q2, g2) = ([side[part] for side in self] for part in (first, second))
        if outer:
            q1, g1 = q1[:, None], g1[:, None]
        return (q1 & g2) | (g1 & q2)

    def part(self, mask: Bool[Tensor, "n"]) -> "QueryGallery":
        """Return the masks of some of the images."""
        return QueryGallery(self.queries[mask], self.gallery[mask])


def query_gallery(
    queries: Bool[Tensor, "n"] | None, gallery: Bool[Tensor, "n"] | None, labels: Int[Tensor, "n"]
) -> QueryGallery:
    """Return the two masks, everything where nothing is given; raises ``ValueError`` if they do not fit the images."""
    if (queries is None) != (gallery is None):
        raise ValueError("queries and gallery must be given together or not at all")
    for name, mask in (("queries", queries), ("gallery", gallery)):
        if mask is not None and (mask.shape != labels.shape or mask.dtype != torch.bool or not mask.any()):
            raise ValueError(
                f"{name} must be a boolean for each of {len(labels)} images, at least one of them true, "
                f"got {mask.dtype} {tuple(mask.shape)}"
            )
    every = torch.ones_like(labels, dtype=torch.bool)
    return QueryGallery(*(every if mask is None else mask.to(labels.device) for mask in (queries, gallery)))


def pair_counts(sides: QueryGallery, labels: Int[Tensor, "n"]) -> tuple[int, int]:
    """Return how many pairs of one identity, and of two, are compared."""
    names, owner = labels.unique(return_inverse=True)
    kinds = (sides.queries & sides.gallery, sides.queries & ~sides.gallery, sides.gallery & ~sides.queries)
    both, query, stored = (torch.bincount(owner[mask], minlength=len(names)) for mask in kinds)
    same = int(_pairs(both, query, stored).sum())
    return same, int(_pairs(both.sum(), query.sum(), stored.sum())) - same


def _pairs(both: Tensor, query: Tensor, stored: Tensor) -> Tensor:
    return query * stored + both * (query + stored) + both * (both - 1) // 2
