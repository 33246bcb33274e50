"""Comparison of two embedders on the same pairs, with confidence intervals."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from .. import plots
from ..data.streams import RESAMPLE, Stream
from ..data.verification_pairs import count_pairs, pairs
from .figures import Figure, Report, format_rate
from .intervals import (
    IDENTITIES,
    TRIALS,
    Identities,
    Measure,
    Measurement,
    SortedTrials,
    percentile_interval,
    split_resamples,
)
from .ranking import check_ids
from .roc import check_pairs
from .scoring import CosineScore, Score, score_pairs


class TooFewIdentitiesError(ValueError):
    """Too few identities to resample: most resamples would have no same or no different pairs.

    >>> scores, same, identities = torch.tensor([0.9, 0.1]), torch.tensor([True, False]), torch.tensor([[0, 0], [1, 2]])
    >>> paired_difference(scores, scores, same, identities=identities)
    Traceback (most recent call last):
    ...
    hypersphere.evaluation.comparison.TooFewIdentitiesError: identities must leave both kinds of pairs in most resamples; ...
    """


def paired_difference(
    first: Shaped[Tensor, "..."],
    second: Shaped[Tensor, "..."],
    same: Shaped[Tensor, "..."],
    *,
    identities: Int[Tensor, "n 2"] | None = None,
    measure: Measure = "eer",
    far: float = 1e-3,
    resamples: int = 1000,
    seed: int = 0,
) -> "DifferenceReport":
    """Compare two embedders by a paired bootstrap: each resample contains the same pairs for both.

    Args:
        first: Scores ``(n,)`` of the first embedder.
        second: Scores ``(n,)`` of the second embedder for the same pairs in the same order.
        same: Whether each pair is of one identity.
        identities: The two identities of each pair. If given, identities are resampled, because pairs that share a person
            are not independent. The weight of a pair is then the product of the counts of its two identities in the resample.
            Without it, pairs are resampled, and intervals are too narrow if few people account for many pairs.
        measure: ``"eer"`` (lower is better), ``"auc"`` or ``"tar"`` at ``far``.
        far: False accept rate of ``"tar"``.
        resamples: Number of resamples.
        seed: Seed of the resamples.

    Returns:
        The measures and their difference, with percentile intervals that are widened for few identities
        (:func:`~hypersphere.evaluation.intervals.percentile_interval`).

    Raises:
        ValueError: If shapes do not match, or the number of pairs does not resolve ``far``.
        TooFewIdentitiesError: If most resamples have no same or no different pairs.

    >>> same = torch.arange(400) < 200
    >>> better, worse = torch.randn(400) + 3 * same, torch.randn(400) + same
    >>> report = paired_difference(better, worse, same, measure="auc", resamples=200)
    >>> report.difference.low > 0
    True
    """
    first, same = check_pairs(first, same)
    second, _ = check_pairs(second, same)
    if measure not in ("eer", "auc", "tar"):
        raise ValueError(f"measure must be 'eer', 'auc' or 'tar', got {measure!r}")
    if resamples < 2:
        raise ValueError(f"resamples must be an integer ≥ 2, got {resamples!r}")
    negatives = int((~same).sum())
    if measure == "tar" and not (0 < far <= 1 and far * negatives >= 1 - 1e-9):
        raise ValueError(f"far must be in (0, 1] and resolved by {negatives} different pairs, got {far!r}")
    if identities is not None and (identities.shape != (len(same), 2) or identities.is_floating_point()):
        raise ValueError(f"identities must be integers of shape ({len(same)}, 2), got {tuple(identities.shape)}")
    both = [SortedTrials(scores, same) for scores in (first, second)]
    unit_weights = torch.ones(1, len(same), device=same.device)
    values = [trials.curve(unit_weights).measure(measure, far).item() for trials in both]
    if identities is None:
        groups, over = len(same), TRIALS
        weights = _draw_weights(same, resamples, seed)
        parts = [[trials.curve(w).measure(measure, far) for trials in both] for w in weights]
        rows = torch.cat([torch.stack(part, 1) for part in parts])
    else:
        owners = Identities(identities.to(same.device), resamples=resamples, seed=seed)
        groups, over = owners.count, IDENTITIES
        rows = torch.stack([trials.resample(owners).measure(measure, far) for trials in both], 1)
    rows = rows[rows.isfinite().all(1)]
    if len(rows) < resamples / 2:
        raise TooFewIdentitiesError(
            "identities must leave both kinds of pairs in most resamples; give pairs of more identities"
        )
    intervals = [percentile_interval(v, r, groups, over=over) for v, r in zip(values, rows.T, strict=True)]
    difference = percentile_interval(values[0] - values[1], rows[:, 0] - rows[:, 1], groups, over=over)
    lead = (rows[:, 0] - rows[:, 1]) * (-1 if measure == "eer" else 1)
    wins = ((lead > 0).double() + (lead == 0).double() / 2).mean().item()
    name = {"eer": "EER", "auc": "AUC", "tar": f"TAR@FAR={format_rate(far)}"}[measure]
    return DifferenceReport(name, intervals[0], intervals[1], difference, wins, len(same), len(rows))


def compare_embedders(
    first: Float[Tensor, "n d"],
    second: Float[Tensor, "n e"],
    labels: Shaped[Tensor, "..."],
    *,
    measure: Measure = "eer",
    far: float = 1e-3,
    negatives: int = 100_000,
    resamples: int = 1000,
    seed: int = 0,
    scores: tuple[Score, Score] | None = None,
) -> "DifferenceReport":
    """Compare two embedders by their features of the same images in the same order, over the same pairs.

    ``negatives`` random different pairs are used, and all same pairs, or a random ``negatives`` of them if there are more.
    Identities are resampled as in :func:`paired_difference`, which explains the other arguments. ``scores`` holds the
    :class:`~hypersphere.evaluation.scoring.Score` of each embedder; the default is the cosine.

    >>> labels = torch.arange(40).repeat(5)
    >>> clear = torch.eye(40)[labels] + 0.1 * torch.randn(200, 40)
    >>> report = compare_embedders(clear, torch.randn(200, 8), labels, resamples=100)
    >>> report.difference.high < 0  # the first has the lower EER
    True
    """
    labels = check_ids("label", labels, first)
    if len(second) != len(first):
        raise ValueError(f"first and second must be features of the same images, got {len(first)} and {len(second)}")
    same, different = count_pairs(labels)
    drawn = pairs(labels.cpu(), min(same, negatives), min(negatives, different), seed=seed)
    both = (CosineScore(), CosineScore()) if scores is None else scores
    first_scores, second_scores = (
        score_pairs(score, score.rows(x.cpu()), drawn.index) for score, x in zip(both, (first, second), strict=True)
    )
    return paired_difference(
        first_scores,
        second_scores,
        drawn.same,
        identities=labels.cpu()[drawn.index],
        measure=measure,
        far=far,
        resamples=resamples,
        seed=seed,
    )


@dataclass(frozen=True, repr=False)
class DifferenceReport(Report):
    """A measure of two embedders, their difference (first minus second), and the share of resamples won by the first.

    >>> same = torch.arange(400) < 200
    >>> better, worse = torch.randn(400) + 3 * same, torch.randn(400) + same
    >>> report = paired_difference(better, worse, same, resamples=30)
    >>> report.measure, report.wins, float(report.first) < float(report.second)
    ('EER', 1.0, True)
    """

    measure: str
    first: Measurement
    second: Measurement
    difference: Measurement
    wins: float
    pairs: int
    resamples: int
    title = "two embedders on the same pairs"

    def figures(self) -> list[Figure]:
        """Return both values and their difference with 95 % percentile intervals, and the share of resamples won by the first."""
        return [
            Figure.of(f"{self.measure} of the first", self.first, count=self.pairs),
            Figure.of(f"{self.measure} of the second", self.second, count=self.pairs),
            Figure.of("first minus second", self._to_percentage_points(), "percentage points", count=self.pairs),
            Figure("first is better", self.wins, "fraction", count=self.resamples),
        ]

    def plot(self, ax: Any = None) -> tuple[Any, Any]:
        """Draw both values with their intervals."""
        values = {"first": self.first, "second": self.second}
        intervals = {name: value.interval for name, value in values.items()}
        return plots.plot_bars(
            {name: float(value) for name, value in values.items()},
            intervals=intervals,
            xlabel=self.measure,
            title=f"first minus second: {100 * self.difference:.3g} percentage points",
            ax=ax,
        )

    def _to_percentage_points(self) -> Measurement:
        low, high = self.difference.interval
        return Measurement(100 * float(self.difference), 100 * low, 100 * high, self.difference.over)


def _draw_weights(same: Bool[Tensor, "n"], resamples: int, seed: int) -> Iterator[Float[Tensor, "r n"]]:
    """Yield the number of times that each pair occurs in each resample, one block of resamples at a time."""
    kinds = [kind.nonzero().squeeze(1) for kind in (same, ~same)]
    for start, stop in split_resamples(len(same), resamples):
        weights = torch.zeros(stop - start, len(same), dtype=torch.float64, device=same.device)
        for i in range(start, stop):
            stream = Stream(seed, RESAMPLE, i)
            for members in kinds:
                times = torch.bincount(stream.integers(len(members), len(members)), minlength=len(members))
                weights[i - start, members] = times.double().to(same.device)
        yield weights
