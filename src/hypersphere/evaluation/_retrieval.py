"""Retrieval measures of a gallery search: mAP, MAP@R, R-precision, recall@k and reciprocal ranks."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from .. import plots
from .figures import Figure, Report
from .intervals import Measurement, clustered_mean
from .ranking import check_ids
from .scoring import CosineScore, Score

RECALLS = (1, 5, 10)
BINS = 4096  # bins between the lowest and the highest relevant score of a query
MIN_BINNED = 2048  # fewer scores are sorted instead of counted in bins
DECIMALS = 12  # scores that agree to this many decimals are ties
EXACT_SHARE = 1 / 25  # above this share of relevant images, computing all scores exactly is faster


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
    """Search a gallery with every query and measure how early the images of its identity are found.

    Every query is compared with the whole gallery in float64, without sampling. An irrelevant image with the score of a
    relevant one is ranked before it. Queries without a relevant image in the gallery are excluded from all means; the
    report contains their number.

    Args:
        queries: Features ``(q, d)`` of the queries.
        query_ids: Identities of the queries, integers.
        gallery: Features ``(g, d)`` to search in. None compares each query with all other queries.
        gallery_ids: Identities of the gallery; None only without a gallery.
        query_cameras: Camera of each query. Gallery images with the same identity and the same camera as the query are
            excluded from its search, as is usual in re-identification.
        gallery_cameras: Camera of each gallery image; without a gallery, ``query_cameras`` is used.
        own: Index of each query in the gallery, −1 if it is not part of it. A query is not compared with itself.
        score: Score to compare features with, the cosine by default.
        chunk: Number of queries compared at a time; affects memory only.

    Raises:
        ValueError: If no query has a relevant image, or shapes of arguments do not match.

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
            raise ValueError("own needs a gallery; without a gallery every query is excluded from its own search")
        own = torch.arange(len(queries), device=queries.device)
        gallery, gallery_ids, gallery_cameras = queries, query_ids, query_cameras
    gallery_ids = check_ids("gallery", gallery_ids, gallery)
    cameras = _check_cameras(query_cameras, gallery_cameras, len(queries), len(gallery))
    columns = score.rows(gallery, "gallery")
    rows = columns if queries is gallery else score.rows(queries, "queries")
    search = _Search(score, rows, columns, _to_numpy(query_ids), _to_numpy(gallery_ids), cameras, _to_numpy(own))
    columns_of_measures = zip(*(_measure(ranks[::-1]) for ranks in search.compute_ranks(chunk)), strict=True)
    dtypes = (torch.float64,) * 3 + (torch.long,) * 2
    measures = _Measures(
        *(torch.tensor(c, dtype=t, device=queries.device) for c, t in zip(columns_of_measures, dtypes, strict=True))
    )
    kept = measures.relevant > 0
    if not kept.any():
        raise ValueError("no query has an image of its identity in the gallery, so there is nothing to retrieve")
    precision, at_r, r_precision, first, _ = (column[kept] for column in measures)
    return RetrievalReport(precision, at_r, r_precision, first, int((~kept).sum()), len(gallery))


@dataclass(frozen=True, repr=False)
class RetrievalReport(Report):
    """Average precision, average precision at R, R-precision, and rank of the first relevant image, for each query.

    ``left_out`` is the number of queries without a relevant image in the gallery of ``images`` images. ``owners`` are the
    identities of the queries; if they are given, intervals are over identities.

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
        """Return the share of queries with a relevant image among the first ``k``, with a 95 % interval."""
        if k < 1:
            raise ValueError(f"k must be an integer ≥ 1, got {k!r}")
        return clustered_mean(self.first <= k, self.owners)

    def figures(self) -> list[Figure]:
        """Return mAP, MAP@R, R-precision, mean reciprocal rank, and recall@1, 5 and 10."""
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
        """Draw a bar with its interval for every figure."""
        figures = self.figures()
        values = {figure.name: float(figure.value) for figure in figures}
        intervals = {f.name: (f.low, f.high) for f in figures if f.low is not None and f.high is not None}
        return plots.plot_bars(values, intervals=intervals, xlabel="mean over queries", title=self.title, ax=ax)


class _Measures(NamedTuple):
    """Measures of each query, as in :class:`RetrievalReport`, and its number of relevant images."""

    precision: Float[Tensor, "q"]
    at_r: Float[Tensor, "q"]
    r_precision: Float[Tensor, "q"]
    first: Int[Tensor, "q"]
    relevant: Int[Tensor, "q"]


class _Search(NamedTuple):
    """A search that ranks the relevant images of every query without sorting the gallery.

    All measures depend only on the ranks of the relevant images. The rank of an image follows from the number of irrelevant
    images that score at least as high. Therefore the scores are estimated (in float32 for cosines, with a strict error
    bound), and the estimates are counted in bins between the relevant scores. Exact scores are computed only for images
    whose estimate is too close to a relevant score. The result equals that of sorting float64 scores rounded to
    ``DECIMALS``.
    """

    score: Score
    queries: Float[Tensor, "q k"]
    gallery: Float[Tensor, "g k"]
    query_ids: Int[np.ndarray, "q"]
    gallery_ids: Int[np.ndarray, "g"]
    cameras: tuple[Int[np.ndarray, "q"], Int[np.ndarray, "g"]] | None
    own: Int[np.ndarray, "q"] | None

    def compute_ranks(self, chunk: int) -> Iterator[Int[np.ndarray, "relevant"]]:
        """Yield the ranks of the relevant images of each query, in descending order."""
        members = _group_by_identity(self.gallery_ids)
        coarse, error = self.score.estimate_rows(self.gallery)
        for start in range(0, len(self.queries), chunk):
            rows = range(start, min(start + chunk, len(self.queries)))
            same = [members.get(self.query_ids[row], np.empty(0, np.int64)) for row in rows]
            part = self.queries[start : start + chunk]
            if not error or sum(map(len, same)) > EXACT_SHARE * len(rows) * len(self.gallery):
                block, bound = self.score.matrix(part, self.gallery).round(decimals=DECIMALS), 0.0
            else:
                block, bound = self.score.matrix(self.score.estimate_rows(part)[0], coarse), error
            for row, values, columns in zip(rows, block.cpu().numpy(), same, strict=True):
                yield self._rank(row, values, columns, bound)

    def _rank(
        self, row: int, values: Float[np.ndarray, "g"], same: Int[np.ndarray, "m"], error: float
    ) -> Int[np.ndarray, "relevant"]:
        """Return the ranks for one query from its scores, whose error is at most ``error``."""
        included = np.ones(len(same), bool)
        if self.cameras is not None:
            included &= self.cameras[1][same] != self.cameras[0][row]
        if self.own is not None:
            included &= same != self.own[row]
        relevant = same[included]
        if not len(relevant):
            return relevant
        scores = np.sort(self._compute_exact(row, relevant) if error else values[relevant])
        values[same] = -np.inf
        if self.own is not None and self.own[row] >= 0:
            values[self.own[row]] = -np.inf
        ahead = self._count_ahead(row, values, scores, error)
        return ahead + np.arange(len(scores), 0, -1)

    def _count_ahead(
        self, row: int, values: Float[np.ndarray, "g"], scores: Float[np.ndarray, "m"], error: float
    ) -> Int[np.ndarray, "m"]:
        """Return the number of irrelevant images that score at least as high as each of the ascending relevant scores.

        The bin index grows with the score. An image is certainly ahead if its bin is higher than that of ``score + error``,
        and certainly not if its bin is lower than that of ``score - error``. Only images in the bins between are sorted.
        Among these, exact scores are computed for images whose estimate is within ``error`` of a relevant score.
        """
        low, high = float(scores[0] - error), float(scores[-1] + error)
        # Compare in the dtype of the values: converting all values would take longer than everything else.
        candidates = np.flatnonzero(values >= np.nextafter(values.dtype.type(low), values.dtype.type(-np.inf)))
        if not len(candidates):
            return np.zeros(len(scores), np.int64)
        near, ahead = values[candidates].astype(np.float64), np.zeros(len(scores), np.int64)
        if len(near) > MIN_BINNED:
            scale = (BINS - 4) / max(high - low, 1e-300)
            bins = _bin(near, low, scale)
            lowest, highest = _bin(scores - error, low, scale), _bin(scores + error, low, scale)
            counts = np.bincount(bins, minlength=BINS)
            borders = np.bincount(lowest, minlength=BINS + 1) - np.bincount(highest + 1, minlength=BINS + 1)
            undecided = borders.cumsum()[:-1] > 0
            chosen = np.flatnonzero(undecided[bins])
            near, candidates = near[chosen], candidates[chosen]
            counts[undecided] = 0
            ahead = (counts.sum() - counts.cumsum())[highest]
        if error:
            position = scores.searchsorted(near)
            close = near <= scores[np.maximum(position - 1, 0)] + error
            close |= near >= scores[np.minimum(position, len(scores) - 1)] - error
            unclear = np.flatnonzero(close)
            if len(unclear):
                near[unclear] = self._compute_exact(row, candidates[unclear])
        return ahead + len(near) - np.sort(near).searchsorted(scores)

    def _compute_exact(self, row: int, columns: Int[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
        """Return the scores of one query with the gallery images ``columns``, in float64."""
        gallery = self.gallery[torch.from_numpy(columns).to(self.gallery.device)]
        return self.score.matrix(self.queries[row : row + 1], gallery)[0].round(decimals=DECIMALS).cpu().numpy()


def _bin(values: Float[np.ndarray, "n"], low: float, scale: float) -> Int[np.ndarray, "n"]:
    """Return the bin of each value. Bins increase with the value and are at least 1 for values ≥ ``low``."""
    return (((values - low) * scale).clip(-1, BINS - 3) + 1).astype(np.int32)


def _group_by_identity(ids: Int[np.ndarray, "g"]) -> dict[int, Int[np.ndarray, "m"]]:
    """Return the gallery indices of each identity."""
    order = ids.argsort(kind="stable")
    names, starts = np.unique(ids[order], return_index=True)
    return dict(zip(names.tolist(), np.split(order, starts[1:]), strict=True))


def _measure(ranks: Int[np.ndarray, "relevant"]) -> tuple[float, float, float, int, int]:
    """Return one row of :class:`_Measures` from the ascending ranks of the relevant images of a query."""
    total = len(ranks)
    if not total:
        return 0.0, 0.0, 0.0, 1, 0
    precision = np.arange(1, total + 1) / ranks
    within = ranks <= total
    at_r = float(precision[within].sum()) / total
    return float(precision.sum()) / total, at_r, int(within.sum()) / total, int(ranks[0]), total


def _check_cameras(
    queries: Tensor | None, gallery: Tensor | None, query_count: int, gallery_count: int
) -> tuple[Int[np.ndarray, "q"], Int[np.ndarray, "g"]] | None:
    """Return the cameras of queries and gallery as arrays, or None without cameras; raise ``ValueError`` if invalid."""
    if (queries is None) != (gallery is None):
        raise ValueError("query_cameras and gallery_cameras must be given together or not at all")
    if queries is None or gallery is None:
        return None
    for name, cameras, count in (("query", queries, query_count), ("gallery", gallery, gallery_count)):
        if cameras.shape != (count,) or cameras.is_floating_point():
            raise ValueError(
                f"{name}_cameras must be an integer for each of {count} images, got {tuple(cameras.shape)}"
            )
    return queries.cpu().numpy(), gallery.cpu().numpy()


def _to_numpy(ids: Tensor | None) -> Any:
    return None if ids is None else ids.cpu().numpy()
