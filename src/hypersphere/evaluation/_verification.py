"""Verification of pairs: accuracy over k folds, EER, AUC and TAR at FAR."""

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
from ..data.verification_pairs import count_pairs, pairs
from ._all_pairs import AllPairs
from .figures import Figure, Report, format_rate
from .intervals import (
    RESAMPLES,
    Curves,
    Identities,
    Measure,
    Measurement,
    SortedTrials,
    mean_interval,
    percentile_interval,
    widen_interval,
    wilson,
)
from .ranking import QueryGallery
from .roc import Roc, check_pairs, sort_pairs, sorted_roc
from .scoring import Score, score_pairs
from .thresholds import DEFAULT_FARS, choose_accurate_threshold, choose_threshold

MIN_IMPOSTORS = 1000  # impostor scores from which the precision of the scores is determined
HIGHEST_PAIRS = 50_000  # different pairs with the highest scores, which are all resampled
MAX_SAMPLED_PAIRS = 50_000  # limit of same pairs, and of the remaining different pairs, in resamples


def verification(
    scores: Shaped[Tensor, "..."],
    same: Shaped[Tensor, "..."],
    folds: int = 10,  # the number of folds in LFW
    *,
    fold: Shaped[Tensor, "..."] | None = None,
    seed: int = 0,
) -> "VerificationReport":
    r"""Evaluate scores of pairs ``(n,)`` against booleans ``same`` ``(n,)``; higher scores mean the same identity.

    The accuracy of each fold uses the threshold with the highest accuracy on the *other* folds (midway between two scores;
    the highest of several best thresholds). Pairs are assigned at random to ``folds`` folds with equal shares of same and
    different pairs. The assignment depends on ``seed`` and on the set of pairs, not on their order. For a protocol with
    fixed folds (LFW), pass the number of each pair's fold as ``fold`` ``(n,)``.

    Scores ``(folds, n)`` from :func:`fold_scores` contain one row per fold, in the order of the fold numbers: row k holds
    the scores of all pairs by the transform fitted without fold k. The threshold of fold k is then chosen on row k, as in
    the evaluation of SphereFace. All other figures use the score of each pair in the row of its fold.

    Args:
        scores: Scores of the pairs, ``(n,)`` or ``(folds, n)``.
        same: Whether each pair is of one identity.
        folds: Number of random folds.
        fold: Fold of each pair, instead of random folds.
        seed: Seed of the random folds.

    Raises:
        ValueError: If a score is not finite, there are no same or no different pairs, or shapes do not match.

    >>> scores = torch.tensor([0.9, 0.8, 0.7, 0.35, 0.4, 0.3, 0.2, 0.1])
    >>> same = torch.tensor([True, True, True, True, False, False, False, False])
    >>> report = verification(scores, same, folds=4)
    >>> report.auc, report.eer, report.tar(0.25)
    (0.9375 [0.7643, 1.0000], 0.2500 [0.0456, 0.6994], 1.0000 [0.5101, 1.0000])
    """
    rows = None
    if scores.ndim == 2:
        fold, rows = _check_row_folds(scores, same, fold), scores
        scores = rows.gather(0, fold[None]).squeeze(0)
    scores, same = check_pairs(scores, same)
    if fold is None:
        if folds < 2:
            raise ValueError(f"folds must be an integer ≥ 2, got {folds!r}")
        scores, same = sort_pairs(scores, same)
        fold = assign_folds(same, folds, seed) if len(scores) >= folds else None
    else:
        fold = _check_fold(fold, scores)
        columns = () if rows is None else (_check_row_scores(rows).T,)
        scores, same, fold, *sorted_columns = sort_pairs(scores, same, fold, *columns)
        rows = sorted_columns[0].T if sorted_columns else None
        folds = int(fold.max()) + 1
    return VerificationReport(sorted_roc(scores, same), scores, same, fold, folds, rows)


@dataclass(frozen=True, repr=False)
class VerificationReport(Report):
    """The result of :func:`verification`, with pairs in descending order of their scores.

    ``rows`` ``(folds, n)`` are the scores of all pairs by the transform of each fold; None if all folds use the same scores.
    Figures are computed on access.

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
        """Accuracy of each fold at the threshold chosen on the other folds."""
        if self.fold is None:
            raise ValueError(
                f"folds must be at most the number of pairs, got {self.folds} folds of {len(self.scores)} pairs"
            )
        accuracies = []
        for i in range(self.folds):
            held_out = self.fold == i
            if self.rows is None:
                threshold = choose_accurate_threshold(self.scores, self.same, ~held_out)
            else:
                threshold = choose_accurate_threshold(*sort_pairs(self.rows[i][~held_out], self.same[~held_out]))
            # Scores are in descending order, so the accepted pairs come first.
            accepted = len(self.scores) - int(torch.searchsorted(self._ascending_scores, threshold))
            correct = (held_out & self.same)[:accepted].count_nonzero()
            correct += (held_out & ~self.same)[accepted:].count_nonzero()
            accuracies.append(correct.double() / held_out.count_nonzero())
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

        The interval is Wilson's over the same pairs at that threshold; it does not include the uncertainty of the threshold.
        Raises ``ValueError`` if there are fewer than 1/far different pairs.
        """
        point = self.roc.at_far(far)
        return wilson(int(self.roc.accepted_same[point]), self.roc.positives, confidence)

    def threshold(self, far: float) -> float:
        """Return the threshold that :meth:`tar` uses."""
        highest = self._impostors[: max(math.ceil(far * len(self._impostors)) + 2, MIN_IMPOSTORS)]
        return choose_threshold(highest, far=far, total=len(self._impostors)).threshold

    @cached_property
    def _ascending_scores(self) -> Float[Tensor, "n"]:
        return self.scores.flip(0)

    @cached_property
    def _impostors(self) -> Float[Tensor, "negatives"]:
        """Scores of different pairs in descending order."""
        return self.scores[~self.same]

    def figures(self) -> list[Figure]:
        """Return accuracy, EER, AUC, and TAR with its threshold at FARs of 10⁻¹ to 10⁻⁶ that the pairs resolve."""
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
        roc: Counts of accepted pairs.
        fars: False accept rates.
        threshold_at: Returns the threshold for a false accept rate.
        unit: Unit of the scores. If it is ``"cosine"``, thresholds are also returned as angles in degrees.
        intervals: Intervals over identities; None treats pairs as independent.
    """
    pairs, resolved = roc.positives + roc.negatives, roc.resolve_fars(fars)
    eer, auc = roc.eer, roc.auc
    tars = {far: wilson(int(roc.accepted_same[roc.at_far(far)]), roc.positives) for far in resolved}
    if intervals is not None:
        eer, auc = intervals.of("eer", eer), intervals.of("auc", auc)
        tars = {far: intervals.of("tar", tar, far) for far, tar in tars.items()}
    figures = [Figure.of("EER", eer, count=pairs), Figure.of("AUC", auc, count=pairs)]
    for far in resolved:
        threshold, at = threshold_at(far), f"@FAR={format_rate(far)}"
        figures.append(Figure.of(f"TAR{at}", tars[far], count=roc.positives))
        figures.append(Figure(f"threshold{at}", threshold, unit))
        if unit == "cosine":
            degrees = math.degrees(math.acos(max(threshold, -1.0))) if threshold <= 1 else math.nan
            figures.append(Figure(f"angle{at}", degrees, "degrees"))
    return figures


def assign_folds(same: Bool[Tensor, "n"], folds: int, seed: int) -> Int[Tensor, "n"]:
    """Assign every pair to a random fold, with equal shares of same and different pairs per fold.

    Pass *sorted* pairs, so that the result does not depend on their original order.
    """
    stream = Stream(seed, FOLD)
    fold = torch.empty(len(same), dtype=torch.long, device=same.device)
    assigned = 0
    for kind in (~same, same):
        count = int(kind.sum())
        fold[kind] = (stream.permutation(count) + assigned).to(same.device) % folds
        assigned += count
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


def _check_row_folds(scores: Tensor, same: Tensor, fold: Tensor | None) -> Tensor:
    """Return the fold of each pair, which is its row in scores ``(folds, n)``; raise ``ValueError`` if shapes do not match."""
    if fold is None or same.shape != scores.shape[1:]:
        raise ValueError(
            f"scores (folds, n) need same and fold of shape (n,), got {tuple(scores.shape)}, {tuple(same.shape)} and "
            f"{None if fold is None else tuple(fold.shape)}"
        )
    fold = _check_fold(fold, scores[0])
    if int(fold.max()) + 1 != len(scores):
        raise ValueError(f"scores must have a row for each of {int(fold.max()) + 1} folds, got {len(scores)}")
    return fold


def _check_row_scores(rows: Float[Tensor, "folds n"]) -> Float[Tensor, "folds n"]:
    """Return the scores of all folds in float64; raise ``ValueError`` if a score is not finite."""
    if not rows.isfinite().all():
        raise ValueError(f"scores must be finite, got {int((~rows.isfinite()).sum())} that are not")
    return rows.detach().double() + 0.0


class PairIntervals:
    """95 % intervals of rates of pairs, from resamples of identities.

    In a resample, the weight of a same pair, or of a trial with a single identity (a probe before a gallery), is the number
    of times its identity was drawn. The weight of a different pair is the product of the numbers of its two identities. An
    interval is never narrower than that of independent pairs.

    Args:
        scores: Score of each pair.
        same: Whether each pair is of one identity.
        identities: The two identities of each pair, or the identity of each trial.
        base: Number of pairs that each pair represents, if the pairs are a sample.
        resamples: Number of resamples.
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

    def of(self, measure: Measure, independent: Measurement, far: float = 0.0) -> Measurement:
        """Return a measure of all pairs with its interval over identities.

        Args:
            measure: ``"eer"``, ``"auc"``, or ``"tar"`` at ``far``.
            independent: The measure with the interval of independent pairs. It is returned unchanged if fewer than half of
                the resamples contain both same and different pairs.
            far: False accept rate of ``"tar"``.
        """
        center = self._full_curve.measure(measure, far).item()
        return self._add_interval(independent, self._resampled_curves.measure(measure, far), center)

    def acceptance_rate(self, threshold: float, independent: Measurement, *, same: bool) -> Measurement:
        """Return the share of same (or different) pairs with a score ≥ ``threshold``, with its interval over identities."""
        below = (self.trials.scores < threshold).long()
        rows = self.identities.sum_weights(self.trials, below, 2, same=same)
        kind = self.trials.same == same
        base = torch.ones_like(self.trials.scores) if self.trials.base is None else self.trials.base
        center = float((base * (1 - below))[kind].sum() / base[kind].sum())
        return self._add_interval(independent, rows[:, 0] / rows.sum(1), center)

    @cached_property
    def _resampled_curves(self) -> Curves:
        return self.trials.resample(self.identities)

    @cached_property
    def _full_curve(self) -> Curves:
        once = torch.ones(1, len(self.trials.scores), device=self.trials.scores.device)
        return self.trials.curve(once, selected=True)

    def _add_interval(self, independent: Measurement, rows: Float[Tensor, "r"], center: float) -> Measurement:
        kept = rows[rows.isfinite()]
        if len(kept) < self.identities.resamples / 2:
            return independent
        resampled = percentile_interval(float(independent), kept, self.identities.count, center)
        return widen_interval(resampled, independent)


def resample_pairs(
    features: Float[Tensor, "n d"],
    labels: Int[Tensor, "n"],
    counted: AllPairs,
    score: Score,
    masks: QueryGallery,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> PairIntervals:
    """Return intervals for the rates of all pairs in ``counted``, from :func:`all_pairs` with ``highest=HIGHEST_PAIRS``.

    Resamples use at most ``MAX_SAMPLED_PAIRS`` random same pairs and all different pairs in ``counted.highest``, which
    determine low false accept rates. A random sample of the remaining different pairs represents all of them, by its
    ``base`` weights.
    """
    same, high = counted.same, counted.highest
    if len(same.scores) > MAX_SAMPLED_PAIRS:
        rows = Stream(seed, PAIR, 1).distinct(MAX_SAMPLED_PAIRS, len(same.scores)).to(labels.device)
        same = type(same)(*(column[rows] for column in same))
    first, second, scores = [same.first, high.first], [same.second, high.second], [same.scores, high.scores]
    base = [torch.ones_like(same.scores), torch.ones_like(high.scores)]
    remaining = counted.roc.negatives - len(high.scores)
    if remaining > 0:
        different = count_pairs(labels)[1]
        index = pairs(labels.cpu(), 0, min(MAX_SAMPLED_PAIRS, different), seed=seed).index.to(labels.device)
        index = index[masks.are_compared(index[:, 0], index[:, 1])]
        values = score_pairs(score, score.rows(features), index).round(decimals=12)
        below = values < high.scores[-1]
        index, values = index[below], values[below]
        if len(values):
            first, second, scores = [*first, index[:, 0]], [*second, index[:, 1]], [*scores, values]
            base.append(torch.full_like(values, remaining / len(values)))
    kinds = torch.cat([torch.full_like(part, i == 0, dtype=torch.bool) for i, part in enumerate(scores)])
    identities = labels[torch.stack([torch.cat(first), torch.cat(second)], 1)]
    return PairIntervals(torch.cat(scores), kinds, identities, torch.cat(base), resamples=resamples, seed=seed)
