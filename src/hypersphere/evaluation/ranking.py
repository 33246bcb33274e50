"""Queries, galleries, and the ranks of the right identity, used by closed- and open-set identification."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from ..geometry import normalize
from .scoring import CosineScore, Score

TIE = 1e-12  # cosines in float64 that differ by less are rounding apart: equal


class Ranking(NamedTuple):
    """For each probe: its best score in the gallery, that of its own identity, where that stands, and who stood first.

    ``rank`` counts identities, each by its best template; ``image_rank`` counts images: 1 + how many images of others
    score at least as high as the probe's best mate. ``first`` is the identity with the best score, its own only if no
    other scores as high. Without a mate in the gallery the mate's score is −∞ and both ranks are 0.
    """

    best: Float[Tensor, "p"]
    mate: Float[Tensor, "p"]
    rank: Int[Tensor, "p"]
    image_rank: Int[Tensor, "p"]
    first: Int[Tensor, "p"]

    @property
    def mated(self) -> Bool[Tensor, "p"]:
        """Whether each probe has its identity in the gallery."""
        return self.rank > 0


def ranking(
    probes: Float[Tensor, "p d"],
    probe_ids: Shaped[Tensor, "..."],
    gallery: Float[Tensor, "g d"],
    gallery_ids: Shaped[Tensor, "..."],
    chunk: int = 256,
    *,
    leave_out: bool = False,
    own: Int[Tensor, "p"] | None = None,
    score: Score | None = None,
) -> Ranking:
    """Rank identities by their best template: 1 + how many *other* identities score at least as high as the right one.

    A tie counts against the probe, so the result does not depend on the order of the gallery. Scores are float64;
    ``chunk`` probes are compared at a time, which changes nothing but memory: the gallery once in float64 and
    ``chunk·(templates + identities)`` numbers. With ``leave_out``, probe i is image i of the gallery and is not
    compared with itself; ``own`` says the same for probes at other places, −1 where a probe is not in the gallery.
    ``score`` is what is compared, the cosine by default.
    """
    if chunk < 1:
        raise ValueError(f"chunk must be an integer ≥ 1, got {chunk!r}")
    probe_ids, gallery_ids = (
        check_ids(n, i, f) for n, i, f in (("probe", probe_ids, probes), ("gallery", gallery_ids, gallery))
    )
    identities, owner = gallery_ids.unique(return_inverse=True)
    mate = torch.searchsorted(identities, probe_ids).clamp_max(len(identities) - 1)
    known = identities[mate] == probe_ids
    score = CosineScore() if score is None else score
    if leave_out:
        own = torch.arange(len(probes), device=gallery.device)
    templates = score.rows(gallery, "gallery")
    place, parts = torch.arange(len(gallery), device=gallery.device), []
    for start in range(0, len(probes), chunk):
        rows = slice(start, start + chunk)
        cos = score.matrix(score.rows(probes[rows], "probes"), templates)
        if own is not None:
            cos = cos.masked_fill(own[rows, None].to(place.device) == place, -torch.inf)
        of_identity = cos.new_full((len(cos), len(identities)), -torch.inf)
        of_identity.scatter_reduce_(1, owner.expand(len(cos), -1), cos, "amax")
        mine = of_identity.gather(1, mate[rows, None])
        rank = (of_identity >= mine - TIE).sum(1)  # its own identity is one of them
        images = 1 + ((cos >= mine - TIE) & (owner != mate[rows, None])).sum(1)
        best, others = of_identity.max(1), of_identity.scatter(1, mate[rows, None], -torch.inf).max(1)
        ahead = others.values >= mine.squeeze(1) - TIE  # a tie goes to the other
        first = torch.where(known[rows], torch.where(ahead, others.indices, mate[rows]), best.indices)
        parts.append((best.values.round(decimals=12), mine.squeeze(1).round(decimals=12), rank, images, first))
    top, found, rank, images, first = (torch.cat(column) for column in zip(*parts, strict=True))
    mated = known & (found > -torch.inf)
    return Ranking(
        top,
        found.masked_fill(~mated, -torch.inf),
        rank.masked_fill(~mated, 0),
        images.masked_fill(~mated, 0),
        identities[first],
    )


def unit(features: Float[Tensor, "n d"], name: str) -> Float[Tensor, "n d"]:
    """Return directions in float64; raise a ``ValueError`` that names the argument for NaN and infinity."""
    if not features.isfinite().all():
        raise ValueError(f"{name} must be finite, got NaN or infinity")
    return normalize(features.detach().double())


def check_ids(name: str, ids: Shaped[Tensor, "..."], features: Float[Tensor, "n d"]) -> Int[Tensor, "n"]:
    """Return identities as integers; raise if there is not one per feature, or no feature."""
    if not len(features) or ids.shape != features.shape[:1] or ids.is_floating_point() or ids.is_complex():
        raise ValueError(
            f"{name}_ids must be integers, one for each of {len(features)} ≥ 1 features, "
            f"got {ids.dtype} {tuple(ids.shape)}"
        )
    return ids.to(features.device).long().contiguous()


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
