"""Ranks of the correct identity, and masks of queries and gallery, for closed- and open-set identification."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from .scoring import CosineScore, Score

TIE = 1e-12  # float64 cosines that differ by less are treated as equal


class Ranking(NamedTuple):
    """Best score, score and ranks of the correct identity, and first identity, for each probe.

    ``best`` is the highest score in the gallery and ``mate`` the highest score of the probe's identity. ``rank`` is
    1 + the number of other identities whose best template scores at least as high as the mate; ``image_rank`` is 1 + the
    number of images of other identities that do. ``first`` is the identity with the best score; it is the probe's identity
    only if no other identity scores as high. Without a mate in the gallery, ``mate`` is −∞ and both ranks are 0.
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


def rank_probes(
    probes: Float[Tensor, "p d"],
    probe_ids: Shaped[Tensor, "..."],
    gallery: Float[Tensor, "g d"],
    gallery_ids: Shaped[Tensor, "..."],
    chunk: int = 256,
    *,
    own: Int[Tensor, "p"] | None = None,
    score: Score | None = None,
) -> Ranking:
    """Rank the correct identity: 1 + the number of *other* identities whose best template scores at least as high.

    Ties increase the rank, so the result does not depend on the order of the gallery.

    Args:
        probes: Features to search with.
        probe_ids: Identities of the probes.
        gallery: Features to search in.
        gallery_ids: Identities of the gallery.
        chunk: Number of probes compared at a time. Memory holds the gallery in float64 and
            ``chunk·(templates + identities)`` numbers.
        own: Index of each probe in the gallery, −1 if it is not part of it; a probe is not compared with itself.
        score: Score to compare features with, the cosine by default.
    """
    if chunk < 1:
        raise ValueError(f"chunk must be an integer ≥ 1, got {chunk!r}")
    probe_ids, gallery_ids = check_ids("probe", probe_ids, probes), check_ids("gallery", gallery_ids, gallery)
    identities, owner = gallery_ids.unique(return_inverse=True)
    mate = torch.searchsorted(identities, probe_ids).clamp_max(len(identities) - 1)
    known = identities[mate] == probe_ids
    score = CosineScore() if score is None else score
    templates = score.rows(gallery, "gallery")
    index, parts = torch.arange(len(gallery), device=gallery.device), []
    for start in range(0, len(probes), chunk):
        rows = slice(start, start + chunk)
        cos = score.matrix(score.rows(probes[rows], "probes"), templates)
        if own is not None:
            cos = cos.masked_fill(own[rows, None].to(index.device) == index, -torch.inf)
        of_identity = cos.new_full((len(cos), len(identities)), -torch.inf)
        of_identity.scatter_reduce_(1, owner.expand(len(cos), -1), cos, "amax")
        correct = of_identity.gather(1, mate[rows, None])
        rank = (of_identity >= correct - TIE).sum(1)  # includes the correct identity
        images = 1 + ((cos >= correct - TIE) & (owner != mate[rows, None])).sum(1)
        best, others = of_identity.max(1), of_identity.scatter(1, mate[rows, None], -torch.inf).max(1)
        ahead = others.values >= correct.squeeze(1) - TIE  # at a tie, the other identity is first
        first = torch.where(known[rows], torch.where(ahead, others.indices, mate[rows]), best.indices)
        parts.append((best.values.round(decimals=12), correct.squeeze(1).round(decimals=12), rank, images, first))
    best_scores, mate_scores, rank, images, first = (torch.cat(column) for column in zip(*parts, strict=True))
    mated = known & (mate_scores > -torch.inf)
    return Ranking(
        best_scores,
        mate_scores.masked_fill(~mated, -torch.inf),
        rank.masked_fill(~mated, 0),
        images.masked_fill(~mated, 0),
        identities[first],
    )


def check_ids(name: str, ids: Shaped[Tensor, "..."], features: Float[Tensor, "n d"]) -> Int[Tensor, "n"]:
    """Return identities as int64; raise ``ValueError`` unless there is one per feature and at least one feature."""
    if not len(features) or ids.shape != features.shape[:1] or ids.is_floating_point() or ids.is_complex():
        raise ValueError(
            f"{name}_ids must be integers, one for each of {len(features)} ≥ 1 features, "
            f"got {ids.dtype} {tuple(ids.shape)}"
        )
    return ids.to(features.device).long().contiguous()


class QueryGallery(NamedTuple):
    """Masks of the images that are queries and of those in the gallery. An image in both is not compared with itself."""

    queries: Bool[Tensor, "n"]
    gallery: Bool[Tensor, "n"]

    def are_compared(self, first: Any, second: Any, *, outer: bool = False) -> Bool[Tensor, "..."]:
        """Return whether one image is a query and the other in the gallery, elementwise or, with ``outer``, for all pairs."""
        (q1, g1), (q2, g2) = ([mask[part] for mask in self] for part in (first, second))
        if outer:
            q1, g1 = q1[:, None], g1[:, None]
        return (q1 & g2) | (g1 & q2)

    def part(self, mask: Bool[Tensor, "n"]) -> "QueryGallery":
        """Return the masks of a subset of the images."""
        return QueryGallery(self.queries[mask], self.gallery[mask])


def make_masks(
    queries: Bool[Tensor, "n"] | None, gallery: Bool[Tensor, "n"] | None, labels: Int[Tensor, "n"]
) -> QueryGallery:
    """Return masks of queries and gallery, by default all images; raise ``ValueError`` if they do not match the images."""
    if (queries is None) != (gallery is None):
        raise ValueError("queries and gallery must be given together or not at all")
    for name, mask in (("queries", queries), ("gallery", gallery)):
        if mask is not None and (mask.shape != labels.shape or mask.dtype != torch.bool or not mask.any()):
            raise ValueError(
                f"{name} must be a boolean for each of {len(labels)} images, at least one of them true, "
                f"got {mask.dtype} {tuple(mask.shape)}"
            )
    everything = torch.ones_like(labels, dtype=torch.bool)
    return QueryGallery(*(everything if mask is None else mask.to(labels.device) for mask in (queries, gallery)))


def count_compared_pairs(masks: QueryGallery, labels: Int[Tensor, "n"]) -> tuple[int, int]:
    """Return the numbers of same pairs and of different pairs that are compared."""
    names, owner = labels.unique(return_inverse=True)
    kinds = (masks.queries & masks.gallery, masks.queries & ~masks.gallery, masks.gallery & ~masks.queries)
    both, query, gallery = (torch.bincount(owner[mask], minlength=len(names)) for mask in kinds)
    same = int(_count_pairs(both, query, gallery).sum())
    return same, int(_count_pairs(both.sum(), query.sum(), gallery.sum())) - same


def _count_pairs(both: Tensor, query: Tensor, gallery: Tensor) -> Tensor:
    """Return the number of compared pairs among images that are both query and gallery, only query, or only gallery."""
    return query * gallery + both * (query + gallery) + both * (both - 1) // 2
