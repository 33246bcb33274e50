"""Intervals of EER, AUC and TAR over trials whose identities are known: a bootstrap over identities."""

import functools

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..data.streams import PAIR, Stream
from ..data.verification_pairs import pairs
from ._all_pairs import AllPairs
from .intervals import Measurement
from .query_gallery import QueryGallery
from .resampling import RESAMPLES, Curves, Identities, Measure, SortedTrials, hull, percentiles
from .scoring import Score, score_pairs

HIGHEST = 50_000  # different pairs of the highest scores that are all resampled
SAMPLED = 50_000  # limit of pairs of each kind; more are sampled


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
