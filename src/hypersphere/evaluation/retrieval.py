"""How well a search by cosine finds everything that is relevant: mAP, MAP@R, R-precision, recall@k, reciprocal ranks."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from .. import plots
from .figures import Figure, Report
from .intervals import Measurement
from .ranking import check_ids
from .resampling import clustered_mean
from .scoring import CosineScore, Score

RECALLS = (1, 5, 10)
TIED = 4e-13  # less than half of the last decimal that scores are rounded to: it orders ties and nothing else


def retrieval(
    queries: Float[Tensor, "q d"],
    query_ids: Shaped[Tensor, "..."],
    gallery: Float[Tensor, "g d"] | None = None,
    gallery_ids: Shaped[Tensor, "..."] | None = None,
    *,
    query_cameras: Shaped[Tensor, "..."] | None = None,
    gallery_cameras: Shaped[Tensor, "..."] | None = None,
    own: Int[Tensor, "q"] | None = None,
    score: Score | None = None,
    chunk: int = 256,
) -> "RetrievalReport":
    """Search a gallery with every query and measure how early the images of its identity come.

    Nothing is sampled and nothing is cut off: every query is compared with the whole gallery, ``chunk`` of them at a
    time, in float64. An irrelevant image that scores as high as a relevant one counts as before it. Queries without
    anything relevant in the gallery are left out of every mean, and their number is reported.

    Args:
        queries: Features ``(q, d)`` to search with.
        query_ids: Their identities, integers.
        gallery: Features ``(g, d)`` to search in; None searches the queries' own set, each without itself.
        gallery_ids: The identities of the gallery; None only without a gallery.
        query_cameras: The camera of each query. A gallery image of the query's identity from the same camera is left
            out of its search, as is usual in re-identification; others of that camera stay.
        gallery_cameras: The camera of each gallery image; without a gallery the queries' own.
        own: The place of each query in the gallery, −1 where it is not in it; a query is not compared with itself.
        score: What is compared, the cosine by default.
        chunk: How many queries are compared at a time; it changes nothing but memory.

    Raises:
        ValueError: If no query has anything relevant to find, or arguments do not fit each other.

    >>> features = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.9, 0.3]])
    >>> report = retrieval(features, torch.tensor([0, 0, 1, 0]))
    >>> float(report.mean_average_precision), report.left_out
    (1.0, 1)
    """
    score = CosineScore() if score is None else score
    if (gallery is None) != (gallery_ids is None):
        raise ValueError("gallery and gallery_ids must be given together or not at all")
    if chunk < 1:
        raise ValueError(f"chunk must be an integer ≥ 1, got {chunk!r}")
    query_ids = check_ids("query", query_ids, queries)
    if gallery is None or gallery_ids is None:
        if own is not None:
            raise ValueError("own belongs to a gallery; without one every query is left out of its own search")
        own = torch.arange(len(queries), device=queries.device)
        gallery, gallery_ids, gallery_cameras = queries, query_ids, query_cameras
    gallery_ids = check_ids("gallery", gallery_ids, gallery)
    cameras = _cameras(query_cameras, gallery_cameras, len(queries), len(gallery))
    rows, columns = score.rows(queries, "queries"), score.rows(gallery, "gallery")
    parts = [_Found(*part) for part in _search(score, rows, columns, query_ids, gallery_ids, cameras, own, chunk)]
    found = _Found(*(torch.cat(column) for column in zip(*parts, strict=True)))
    kept = found.relevant > 0
    if not kept.any():
        raise ValueError("no query has an image of its identity in the gallery, so there is nothing to retrieve")
    left = _Found(*(column[kept] for column in found))
    return RetrievalReport(left.precision, left.at_r, left.r_precision, left.first, int((~kept).sum()), len(gallery))


@dataclass(frozen=True, repr=False)
class RetrievalReport(Report):
    """Of each query: average precision, the same at R, R-precision, and the rank of the first relevant image.

    ``left_out`` queries had nothing relevant in the gallery of ``images`` images. ``owners`` are the identities of the
    queries; where they are known, intervals are over identities.

    >>> features = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.9, 0.3]])
    >>> report = retrieval(features, torch.tensor([0, 0, 0, 1]))
    >>> report.first.tolist(), round(float(report.mean_reciprocal_rank), 3), report.left_out
    ([1, 1, 2], 0.833, 1)
    """

    precision: Float[Tensor, "q"]
    precision_at_r: Float[Tensor, "q"]
    precision_r: Float[Tensor, "q"]
    first: Int[Tensor, "q"]
    left_out: int
    images: int
    owners: Int[Tensor, "q"] | None = None
    title = "retrieval"

    @property
    def mean_average_precision(self) -> Measurement:
        """The mean over queries of 1/R Σ precision at each relevant image, with the interval of a mean."""
        return clustered_mean(self.precision, self.owners)

    @property
    def map_at_r(self) -> Measurement:
        """The mean over queries of 1/R Σ_{i ≤ R} [i-th is relevant]·precision at i."""
        return clustered_mean(self.precision_at_r, self.owners)

    @property
    def r_precision(self) -> Measurement:
        """The mean over queries of the share of relevant images among the first R."""
        return clustered_mean(self.precision_r, self.owners)

    @property
    def mean_reciprocal_rank(self) -> Measurement:
        """The mean over queries of 1/rank of the first relevant image."""
        return clustered_mean(1 / self.first.double(), self.owners)

    def recall(self, k: int = 1) -> Measurement:
        """The share of queries with something relevant among the first ``k``, with a 95 % interval."""
        if k < 1:
            raise ValueError(f"k must be an integer ≥ 1, got {k!r}")
        return clustered_mean(self.first <= k, self.owners)

    def figures(self) -> list[Figure]:
        """Return mAP, MAP@R, R-precision, mean reciprocal rank and recall at 1, 5 and 10."""
        count = len(self.first)
        named = {
            "mAP": self.mean_average_precision,
            "MAP@R": self.map_at_r,
            "R-precision": self.r_precision,
            "mean reciprocal rank": self.mean_reciprocal_rank,
        }
        named |= {f"recall@{k}": self.recall(k) for k in RECALLS if k <= self.images}
        return [Figure.of(name, value, count=count) for name, value in named.items()]

    def plot(self, ax: Any = None) -> tuple[Any, Any]:
        """Draw every figure as a bar with its interval."""
        figures = self.figures()
        values = {figure.name: float(figure.value) for figure in figures}
        intervals = {f.name: (f.low, f.high) for f in figures if f.low is not None and f.high is not None}
        return plots.plot_bars(values, intervals=intervals, xlabel="mean over queries", title=self.title, ax=ax)


class _Found(NamedTuple):
    """Columns of a :class:`RetrievalReport` for some queries, and how many relevant images each has."""

    precision: Tensor
    at_r: Tensor
    r_precision: Tensor
    first: Tensor
    relevant: Tensor


def _search(
    score: Score,
    queries: Float[Tensor, "q k"],
    gallery: Float[Tensor, "g k"],
    query_ids: Int[Tensor, "q"],
    gallery_ids: Int[Tensor, "g"],
    cameras: tuple[Tensor, Tensor] | None,
    own: Int[Tensor, "q"] | None,
    chunk: int,
) -> Iterator[tuple[Tensor, ...]]:
    place = torch.arange(len(gallery), device=gallery.device)
    for start in range(0, len(queries), chunk):
        part = slice(start, start + chunk)
        values = score.matrix(queries[part], gallery).round(decimals=12)
        relevant = query_ids[part, None] == gallery_ids
        hidden = torch.zeros_like(relevant)
        if own is not None:
            hidden |= own[part, None].to(place.device) == place
        if cameras is not None:
            hidden |= relevant & (cameras[0][part, None] == cameras[1])
        relevant &= ~hidden
        order = (values - TIED * relevant).masked_fill(hidden, -torch.inf).argsort(1, descending=True)
        yield _of_rows(relevant.gather(1, order))


def _of_rows(hits: Bool[Tensor, "q g"]) -> tuple[Tensor, ...]:
    """The measures of rows of relevance in the order of the scores."""
    total = hits.sum(1)
    rank = torch.arange(1, hits.shape[1] + 1, device=hits.device)
    precision = hits * hits.cumsum(1).double() / rank
    within = rank <= total[:, None]
    share = total.clamp_min(1).double()
    first = hits.to(torch.uint8).argmax(1) + 1
    sums = (precision.sum(1), (precision * within).sum(1), (hits & within).sum(1).double())
    return (*(value / share for value in sums), first, total)


def _cameras(
    queries: Tensor | None, gallery: Tensor | None, query_count: int, gallery_count: int
) -> tuple[Tensor, Tensor] | None:
    if (queries is None) != (gallery is None):
        raise ValueError("query_cameras and gallery_cameras must be given together or not at all")
    if queries is None or gallery is None:
        return None
    for name, given, count in (("query", queries, query_count), ("gallery", gallery, gallery_count)):
        if given.shape != (count,) or given.is_floating_point():
            raise ValueError(f"{name}_cameras must be an integer for each of {count} images, got {tuple(given.shape)}")
    return queries, gallery
