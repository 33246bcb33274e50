"""Verification of pairs: accuracy by k-fold protocol, EER, AUC and TAR at FAR."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from .. import plots
from ..data.streams import FOLD, PAIR, Stream
from ..data.verification_pairs import pairs
from ._all_pairs import AllPairs
from .figures import Figure, Report, rate_name
from .intervals import (
    RESAMPLES,
    Curves,
    Identities,
    Measure,
    Measurement,
    SortedTrials,
    hull,
    mean_interval,
    percentiles,
    wilson,
)
from .ranking import QueryGallery
from .roc import Roc, check_pairs, sort_pairs, sorted_roc
from .scoring import Score, score_pairs
from .thresholds import DEFAULT_FARS, choose_accurate_threshold, choose_threshold

MIN_IMPOSTORS = 1000  # scores whose precision decides how close above a score its threshold lies
HIGHEST = 50_000  # different pairs of the highest scores that are all resampled
SAMPLED = 50_000  # limit of pairs of each kind; more are sampled


def verification(
    scores: Shaped[Tensor, "..."],
    same: Shaped[Tensor, "..."],
    folds: int = 10,  # the number of folds in LFW
    *,
    fold: Shaped[Tensor, "..."] | None = None,
    seed: int = 0,
) -> "VerificationReport":
    r"""Evaluate scores of pairs ``(n,)`` against ``same`` ``(n,)``, boolean: higher scores mean the same identity.

    The accuracy of each fold uses the threshold that is best on the *other* folds (midway between two of their scores;
    of several best ones the highest). Pairs are dealt into ``folds`` folds that hold both kinds in equal shares; the
    deal depends on ``seed`` and on the set of pairs, not on their order. A protocol with its own folds (LFW) passes
    the number of each pair's fold as ``fold`` ``(n,)``.

    Scores ``(folds, n)``, as :func:`fold_scores` makes them, hold every pair once for each fold, in the order of the
    fold numbers: row k scores all pairs by the transform that was fitted without fold k. The threshold of fold k is
    then chosen on row k, as in the evaluation of SphereFace; every other figure uses each pair's score of its own fold.

    Raises ``ValueError`` if a score is not finite, one kind of pair is missing, or shapes do not fit.

    >>> scores = torch.tensor([0.9, 0.8, 0.7, 0.35, 0.4, 0.3, 0.2, 0.1])
    >>> same = torch.tensor([True, True, True, True, False, False, False, False])
    >>> report = verification(scores, same, folds=4)
    >>> report.auc, report.eer, report.tar(0.25)
    (0.9375 [0.7643, 1.0000], 0.2500 [0.0456, 0.6994], 1.0000 [0.5101, 1.0000])
    """
    rows = None
    if scores.ndim == 2:
        fold, rows = _check_rows(scores, same, fold), scores
        scores = rows.gather(0, fold[None]).squeeze(0)
    scores, same = check_pairs(scores, same)
    if fold is None:
        if folds < 2:
            raise ValueError(f"folds must be an integer ≥ 2, got {folds!r}")
        scores, same = sort_pairs(scores, same)
        fold = deal(same, folds, seed) if len(scores) >= folds else None
    else:
        fold = _check_fold(fold, scores)
        columns = () if rows is None else (_finite_rows(rows).T,)
        scores, same, fold, *moved = sort_pairs(scores, same, fold, *columns)
        rows = moved[0].T if moved else None
        folds = int(fold.max()) + 1
    return VerificationReport(sorted_roc(scores, same), scores, same, fold, folds, rows)


@dataclass(frozen=True, repr=False)
class VerificationReport(Report):
    """The result of :func:`verification`; its pairs go from the highest score down.

    ``rows`` ``(folds, n)`` are the scores of all pairs by each fold's transform, None where one score serves all folds.
    Figures are computed when asked for.

    >>> scores = torch.tensor([0.9, 0.8, 0.7, 0.35, 0.4, 0.3, 0.2, 0.1])
    >>> report = verification(scores, torch.arange(8) < 4, folds=4)
    >>> round(report.threshold(far=0.25), 2), report.accuracies.tolist()
    (0.3, [1.0, 0.5, 1.0, 0.5])
    """

    roc: Roc
    scores: Float[Tensor, "n"]
    same: Bool[Tensor, "n"]
    fold: Int[Tensor, "n"] | None
    folds: int
    rows: Float[Tensor, "folds n"] | None = None
    title = "verification"

    @property
    def auc(self) -> Measurement:
        """Area under the ROC curve, ties counted half, with DeLong's 95 % interval."""
        return self.roc.auc

    @property
    def eer(self) -> Measurement:
        """Equal error rate with a 95 % interval."""
        return self.roc.eer

    @cached_property
    def accuracies(self) -> Float[Tensor, "folds"]:
        """The accuracy of each fold at the threshold of the others."""
        if self.fold is None:
            raise ValueError(
                f"folds must be at most the number of pairs, got {self.folds} folds of {len(self.scores)} pairs"
            )
        accuracies = []
        for i in range(self.folds):
            held = self.fold == i
            if self.rows is None:
                threshold = choose_accurate_threshold(self.scores, self.same, ~held)
            else:
                threshold = choose_accurate_threshold(*sort_pairs(self.rows[i][~held], self.same[~held]))
            # The scores descend, so the accepted pairs are the first ones.
            accepted = len(self.scores) - int(torch.searchsorted(self._sort_scores, threshold))
            right = (held & self.same)[:accepted].count_nonzero() + (held & ~self.same)[accepted:].count_nonzero()
            accuracies.append(right.double() / held.count_nonzero())
        return torch.stack(accuracies)

    @property
    def accuracy(self) -> Measurement:
        """Mean accuracy over the folds, with the 95 % interval of a mean of independent folds."""
        return mean_interval(self.accuracies)

    @property
    def spread(self) -> float:
        """Standard deviation of the accuracy over the folds (n − 1)."""
        return self.accuracies.std().item()

    def tar(self, far: float, confidence: float = 0.95) -> Measurement:
        """Return the true accept rate at the lowest threshold whose false accept rate is at most ``far``.

        The interval is Wilson's over the same pairs at that threshold; the threshold's own uncertainty is not in it.
        Raises ``ValueError`` if there are fewer than 1/far different pairs.
        """
        point = self.roc.at_far(far)
        return wilson(int(self.roc.accepted_same[point]), self.roc.positives, confidence)

    def threshold(self, far: float) -> float:
        """Return the threshold behind :meth:`tar`."""
        highest = self._impostors[: max(math.ceil(far * len(self._impostors)) + 2, MIN_IMPOSTORS)]
        return choose_threshold(highest, far=far, total=len(self._impostors)).threshold

    @cached_property
    def _sort_scores(self) -> Float[Tensor, "n"]:
        return self.scores.flip(0)

    @cached_property
    def _impostors(self) -> Float[Tensor, "negatives"]:
        """Scores of different pairs in descending order."""
        return self.scores[~self.same]

    def figures(self) -> list[Figure]:
        """Return accuracy, EER, AUC, and TAR with its threshold at every power of ten of FAR that is resolved."""
        figures = [
            Figure("same pairs", self.roc.positives, "pairs"),
            Figure("different pairs", self.roc.negatives, "pairs"),
        ]
        if self.fold is not None:
            figures += [
                Figure.of("accuracy", self.accuracy, count=len(self.scores)),
                Figure.of("accuracy spread", self.spread),
                Figure("folds", self.folds),
            ]
        return [*figures, *rate_figures(self.roc, (1e-1, *DEFAULT_FARS, 1e-5, 1e-6), self.threshold)]

    def plot(self, ax: Any = None) -> tuple[Any, Any]:
        """Draw the ROC curve with a logarithmic FAR."""
        name = f"AUC {100 * self.auc:.4g} %\nEER {100 * self.eer:.4g} %"
        return plots.plot_roc({name: (self.roc.far, self.roc.tar)}, title=self.title, ax=ax)


def rate_figures(
    roc: Roc,
    fars: Sequence[float],
    threshold_at: Callable[[float], float],
    unit: str = "score",
    intervals: "PairIntervals | None" = None,
) -> list[Figure]:
    """Return EER, AUC, and TAR with its threshold for each FAR that the pairs resolve.

    Args:
        roc: The counts of accepted pairs.
        fars: False accept rates.
        threshold_at: Returns the threshold for a false accept rate.
        unit: The unit of scores. A threshold that is a ``"cosine"`` is also given as an angle in degrees.
        intervals: Makes the intervals over identities; without it pairs are taken for independent.
    """
    pairs, resolved = roc.positives + roc.negatives, roc.resolve_fars(fars)
    eer, auc = roc.eer, roc.auc
    tars = {far: wilson(int(roc.accepted_same[roc.at_far(far)]), roc.positives) for far in resolved}
    if intervals is not None:
        eer, auc = intervals.of("eer", eer), intervals.of("auc", auc)
        tars = {far: intervals.of("tar", tar, far) for far, tar in tars.items()}
    figures = [Figure.of("EER", eer, count=pairs), Figure.of("AUC", auc, count=pairs)]
    for far in resolved:
        threshold, at = threshold_at(far), f"@FAR={rate_name(far)}"
        figures.append(Figure.of(f"TAR{at}", tars[far], count=roc.positives))
        figures.append(Figure(f"threshold{at}", threshold, unit))
        if unit == "cosine":
            degrees = math.degrees(math.acos(max(threshold, -1.0))) if threshold <= 1 else math.nan
            figures.append(Figure(f"angle{at}", degrees, "degrees"))
    return figures


def deal(same: Bool[Tensor, "n"], folds: int, seed: int) -> Int[Tensor, "n"]:
    """Return a fold for every pair, both kinds in equal shares.

    It is a random deal of *sorted* pairs, so that the order in which they came is no matter.
    """
    stream = Stream(seed, FOLD)
    fold = torch.empty(len(same), dtype=torch.long, device=same.device)
    dealt = 0
    for kind in (~same, same):
        count = int(kind.sum())
        fold[kind] = (stream.permutation(count) + dealt).to(same.device) % folds
        dealt += count
    return fold


def _check_fold(fold: Tensor, scores: Tensor) -> Tensor:
    if fold.shape != scores.shape or fold.dtype == torch.bool or fold.is_floating_point() or fold.is_complex():
        raise ValueError(
            f"fold must hold an integer for each of the {len(scores)} pairs, got {fold.dtype} {tuple(fold.shape)}"
        )
    ids, fold = fold.to(scores.device).unique(return_inverse=True)
    if len(ids) < 2:
        raise ValueError(f"fold must name at least two folds, got {ids.tolist()}")
    return fold


def _check_rows(scores: Tensor, same: Tensor, fold: Tensor | None) -> Tensor:
    """Return the row of each pair for scores ``(folds, n)``."""
    if fold is None or same.shape != scores.shape[1:]:
        raise ValueError(
            f"scores (folds, n) need same and fold of shape (n,), got {tuple(scores.shape)}, {tuple(same.shape)} and "
            f"{None if fold is None else tuple(fold.shape)}"
        )
    fold = _check_fold(fold, scores[0])
    if int(fold.max()) + 1 != len(scores):
        raise ValueError(f"scores must have a row for each of {int(fold.max()) + 1} folds, got {len(scores)}")
    return fold


def _finite_rows(rows: Float[Tensor, "folds n"]) -> Float[Tensor, "folds n"]:
    """Return the scores of all folds in float64; raise a ``ValueError`` if one is not finite."""
    if not rows.isfinite().all():
        raise ValueError(f"scores must be finite, got {int((~rows.isfinite()).sum())} that are not")
    return rows.detach().double() + 0.0


class PairIntervals:
    """95 % intervals of rates of pairs, with identities drawn anew.

    In a resample a pair of one identity counts as often as that was drawn, a pair of two the product of both. An interval
    is never narrower than that of independent pairs. Trials that have one identity each, such as probes before a gallery,
    count as often as theirs was drawn.

    Args:
        scores: A score for each pair.
        same: Whether it is of one identity.
        identities: Its two identities, or the one of each trial.
        base: How many pairs it stands for, where some were drawn of many.
        resamples: How many resamples are drawn.
        seed: Seed of the resamples.

    >>> labels = torch.arange(20).repeat_interleave(4)
    >>> index = torch.combinations(torch.arange(80))
    >>> same = labels[index[:, 0]] == labels[index[:, 1]]
    >>> scores = torch.randn(len(same)) + 2 * same
    >>> roc = hs.evaluation.roc_curve(scores, same)
    >>> wide = PairIntervals(scores, same, labels[index]).of("eer", roc.eer)
    >>> wide == roc.eer, wide.low <= roc.eer.low, wide.over
    (True, True, 'identities')
    """

    def __init__(
        self,
        scores: Float[Tensor, "n"],
        same: Bool[Tensor, "n"],
        identities: Int[Tensor, "n 2"] | Int[Tensor, "n"],
        base: Float[Tensor, "n"] | None = None,
        *,
        resamples: int = RESAMPLES,
        seed: int = 0,
    ):
        self.trials = SortedTrials(scores, same, base)
        self.identities = Identities(identities, resamples=resamples, seed=seed)

    def of(self, measure: Measure, alone: Measurement, far: float = 0.0) -> Measurement:
        """Return a measure of all pairs with its interval over identities.

        Args:
            measure: ``"eer"``, ``"auc"``, or ``"tar"`` at ``far``.
            alone: The measure of all pairs with the interval of independent pairs, which is returned as it is where fewer
                than half of the resamples hold both kinds of pairs.
            far: The false accept rate of ``"tar"``.
        """
        return self._add_interval(alone, self._curves.measure(measure, far), self._whole.measure(measure, far).item())

    def acceptance_rate(self, threshold: float, alone: Measurement, *, same: bool) -> Measurement:
        """Return the share of pairs of one kind whose score is at least ``threshold``, likewise."""
        below = (self.trials.scores < threshold).long()
        rows = self.identities.sums(self.trials, below, 2, same=same)
        kind = self.trials.same == same
        base = torch.ones_like(self.trials.scores) if self.trials.base is None else self.trials.base
        center = float((base * (1 - below))[kind].sum() / base[kind].sum())
        return self._add_interval(alone, rows[:, 0] / rows.sum(1), center)

    @functools.cached_property
    def _curves(self) -> Curves:
        return self.trials.resample(self.identities)

    @functools.cached_property
    def _whole(self) -> Curves:
        return self.trials.curve(torch.ones(1, len(self.trials.scores), device=self.trials.scores.device), thin=True)

    def _add_interval(self, alone: Measurement, rows: Float[Tensor, "r"], center: float) -> Measurement:
        kept = rows[rows.isfinite()]
        if len(kept) < self.identities.resamples / 2:
            return alone
        return hull(percentiles(float(alone), kept, self.identities.count, center), alone)


def resample_pairs(
    features: Float[Tensor, "n d"],
    labels: Int[Tensor, "n"],
    counted: AllPairs,
    score: Score,
    sides: QueryGallery,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> PairIntervals:
    """Return the intervals of the rates of all pairs, which :func:`all_pairs` has counted with ``highest=HIGHEST``.

    At most ``SAMPLED`` pairs of one identity are resampled, drawn at random where there are more. Of pairs of two, those
    of the highest scores are resampled all, because low rates of false accepts are about them, and of the others as many
    as are drawn stand for the rest.
    """
    same, high = counted.same, counted.highest
    if len(same.scores) > SAMPLED:
        rows = Stream(seed, PAIR, 1).distinct(SAMPLED, len(same.scores)).to(labels.device)
        same = type(same)(*(column[rows] for column in same))
    first, second, scores = [same.first, high.first], [same.second, high.second], [same.scores, high.scores]
    base = [torch.ones_like(same.scores), torch.ones_like(high.scores)]
    rest = counted.roc.negatives - len(high.scores)
    if rest > 0:
        sizes = labels.unique(return_counts=True)[1]
        different = (len(labels) ** 2 - int(sizes.square().sum())) // 2
        some = pairs(labels.cpu(), 0, min(SAMPLED, different), seed=seed)
        index = torch.stack([some.first, some.second], 1).to(labels.device)
        index = index[sides.are_compared(index[:, 0], index[:, 1])]
        values = score_pairs(score, score.rows(features), index).round(decimals=12)
        below = values < high.scores[-1]
        index, values = index[below], values[below]
        if len(values):
            first, second, scores = [*first, index[:, 0]], [*second, index[:, 1]], [*scores, values]
            base.append(torch.full_like(values, rest / len(values)))
    kinds = torch.cat([torch.full_like(part, i == 0, dtype=torch.bool) for i, part in enumerate(scores)])
    identities = labels[torch.stack([torch.cat(first), torch.cat(second)], 1)]
    return PairIntervals(torch.cat(scores), kinds, identities, torch.cat(base), resamples=resamples, seed=seed)
