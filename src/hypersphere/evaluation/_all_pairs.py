"""The exact ROC, the worst errors and histograms of all pairs of a set of features, computed in chunks of rows."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from .ranking import QueryGallery, check_ids, count_compared_pairs, make_masks
from .roc import Roc, StreamedRoc
from .scoring import CosineScore, Score
from .thresholds import DEFAULT_FARS, choose_threshold

BINS = 200  # bins per histogram


class PairErrors(NamedTuple):
    """Pairs ``(first, second)`` of images, as indices into the features, and their scores.

    >>> features = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.6, 0.8]])
    >>> worst = all_pairs(features, torch.tensor([0, 0, 1, 1])).false_accepts
    >>> int(worst.first[0]), int(worst.second[0]), round(float(worst.scores[0]), 3)
    (1, 3, 0.677)
    """

    first: Int[Tensor, "k"]
    second: Int[Tensor, "k"]
    scores: Float[Tensor, "k"]


class AllPairs(NamedTuple):
    """The result of :func:`all_pairs`.

    ``same`` are all same pairs with their scores, in the order of the identities. ``false_accepts`` are the different pairs
    with the highest scores and ``false_rejects`` the same pairs with the lowest, the worst first. The histograms count scores
    in bins of equal width over ``span``, −1 to 1 for cosines; the bins at the ends include scores beyond it. ``unit`` is the
    unit of the scores. ``highest`` are the ``highest`` different pairs of :func:`all_pairs`. ``impostors`` are the highest
    scores of different pairs in descending order, for :meth:`threshold`.

    >>> features = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.6, 0.8]])
    >>> counted = all_pairs(features, torch.tensor([0, 0, 1, 1]))
    >>> int(counted.same_histogram.sum()), int(counted.different_histogram.sum())
    (2, 4)
    >>> round(float(counted.false_rejects.scores[0]), 3)  # the least similar pair of one identity
    0.8
    """

    roc: Roc
    same: PairErrors
    false_accepts: PairErrors
    false_rejects: PairErrors
    same_histogram: Int[Tensor, "bins"]
    different_histogram: Int[Tensor, "bins"]
    highest: PairErrors
    impostors: Float[Tensor, "t"]
    span: tuple[float, float] = (-1.0, 1.0)
    unit: str = "cosine"

    def threshold(self, far: float) -> float:
        """Return the smallest threshold with a false accept rate of at most ``far``, itself at most the one of :func:`all_pairs`."""
        return choose_threshold(self.impostors, far=far, total=self.roc.negatives).threshold


def all_pairs(
    features: Float[Tensor, "n d"],
    labels: Shaped[Tensor, "..."],
    *,
    at: Float[Tensor, "k"] | None = None,
    worst: int = 20,
    highest: int = 0,
    far: float = max(DEFAULT_FARS),
    chunk: int = 128,
    score: Score | None = None,
    masks: QueryGallery | None = None,
) -> AllPairs:
    """Compare all pairs of n features in float64, without sampling, and count their scores.

    Same pairs are kept, at 24 bytes each. Different pairs are counted and discarded. Memory holds the features, the same
    pairs and ``chunk·n`` scores.

    Args:
        features: Features ``(n, d)``.
        labels: Identities, integers; at least two identities, one of them with two features.
        at: Additional scores at which the ROC gets a point.
        worst: Number of the most confident errors of each kind to keep.
        highest: Number of different pairs with the highest scores to keep for resampling.
        far: Largest false accept rate for which :meth:`AllPairs.threshold` will be called. This share of the scores of
            different pairs is kept.
        chunk: Number of rows compared at a time; affects memory only.
        score: Score to compare features with, the cosine by default.
        masks: Masks of queries and gallery. If given, only pairs of a query and a gallery image count.

    >>> counted = all_pairs(torch.eye(3).repeat(2, 1), torch.arange(3).repeat(2))
    >>> float(counted.roc.eer), counted.roc.positives, counted.roc.negatives
    (0.0, 3, 12)
    """
    labels = check_ids("label", labels, features)
    if chunk < 1 or worst < 1:
        raise ValueError(f"chunk and worst must be integers ≥ 1, got {chunk!r} and {worst!r}")
    score = CosineScore() if score is None else score
    x = score.rows(features)
    first, second = _list_same_pairs(labels)
    masks = make_masks(None, None, labels) if masks is None else masks
    kept = masks.are_compared(first, second)
    first, second = first[kept], second[kept]
    counts = count_compared_pairs(masks, labels)
    if not all(counts):
        raise ValueError(
            f"labels must give same and different pairs, got {counts[0]} same and {counts[1]} different pairs of "
            f"{len(labels)} images"
        )
    parts = zip(first.split(4096), second.split(4096), strict=True)
    scores = torch.cat([score.score_pairs(x[a], x[b]) for a, b in parts]).round(decimals=12)
    same = PairErrors(first, second, scores)
    counted = StreamedRoc(scores, at)
    histogram = torch.zeros(BINS, dtype=torch.long, device=x.device)
    span: tuple[float, float] | None = None
    top = PairErrors(first[:0], second[:0], scores[:0])
    impostors = _HighestScores(int(far * counts[1]) + 2, scores[:0])
    for start in range(0, len(x), chunk):
        cos = score.matrix(x[start : start + chunk], x[start:]).round_(decimals=12)
        others = labels[start : start + chunk, None] != labels[start:]
        others[:, :chunk].triu_(1)  # each pair once
        others &= masks.are_compared(slice(start, start + chunk), slice(start, None), outer=True)
        different = cos[others]
        span = _choose_span(score, scores, different) if span is None else span
        counted.update(different)
        impostors.update(different)
        histogram += _count_in_bins(different, span)
        top = _merge_highest(top, cos.masked_fill_(others.logical_not_(), -torch.inf), start, max(worst, highest))
    lowest = scores.argsort(stable=True)[:worst]
    rejects = PairErrors(first[lowest], second[lowest], scores[lowest])
    assert span is not None
    accepts, highest_pairs = (PairErrors(*(column[:count] for column in top)) for count in (worst, highest))
    bins = (_count_in_bins(scores, span), histogram)
    return AllPairs(counted.roc(), same, accepts, rejects, *bins, highest_pairs, impostors.sort(), span, score.unit)


class _HighestScores:
    """The ``count`` highest of all scores so far. Storing up to three times as many makes pruning rare."""

    def __init__(self, count: int, empty: Float[Tensor, "0"]):
        self.count, self.parts, self.stored = count, [empty], 0
        self.floor = -torch.inf

    def update(self, scores: Float[Tensor, "n"]) -> None:
        self.parts.append(scores[scores > self.floor])
        self.stored += len(self.parts[-1])
        if self.stored > 2 * self.count:
            self.parts = [torch.cat(self.parts).topk(self.count, sorted=False).values]
            self.floor, self.stored = self.parts[0].min().item(), self.count

    def sort(self) -> Float[Tensor, "count"]:
        stored = torch.cat(self.parts)
        return stored.topk(min(self.count, len(stored))).values


def _list_same_pairs(labels: Int[Tensor, "n"]) -> tuple[Int[Tensor, "m"], Int[Tensor, "m"]]:
    """Return all pairs of images of one identity, with ``first < second``."""
    order = labels.argsort(stable=True)
    groups = order.split(labels.unique(return_counts=True)[1].tolist())
    pairs = [torch.combinations(members) for members in groups if len(members) > 1]
    both = torch.cat([order.new_empty(0, 2), *pairs])
    return both[:, 0], both[:, 1]


def _choose_span(score: Score, same: Float[Tensor, "m"], different: Float[Tensor, "k"]) -> tuple[float, float]:
    """Return the range of the histograms: −1 to 1 for cosines, otherwise that of the same and the first different pairs."""
    if score.unit == "cosine":
        return -1.0, 1.0
    low, high = (float(end) for end in torch.cat([same, different]).aminmax())
    return low, high if high > low else low + 1.0


def _count_in_bins(scores: Float[Tensor, "n"], span: tuple[float, float]) -> Int[Tensor, "bins"]:
    bins = (scores - span[0]).mul_(BINS / (span[1] - span[0])).clamp_(0, BINS - 1).int()
    return torch.bincount(bins, minlength=BINS)


def _merge_highest(kept: PairErrors, cos: Float[Tensor, "rows columns"], start: int, count: int) -> PairErrors:
    """Merge ``kept`` with the highest scores of a chunk ``cos``, in which all entries but different pairs are −∞."""
    limit = kept.scores[-1] if len(kept.scores) == count else cos.new_tensor(-torch.inf)
    index = (cos > limit).flatten().nonzero().squeeze(1)  # few entries once ``kept`` is full
    scores, order = cos.flatten()[index].topk(min(count, len(index)))
    row, column = index[order] // cos.shape[1] + start, index[order] % cos.shape[1] + start
    new = (row, column, scores)
    first, second, scores = (torch.cat(columns) for columns in zip(kept, new, strict=True))
    order = scores.argsort(descending=True, stable=True)[:count]
    order = order[scores[order] > -torch.inf]
    return PairErrors(first[order], second[order], scores[order])
