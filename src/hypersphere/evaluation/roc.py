"""The receiver operating characteristic of scores: every threshold at once, with ties counted exactly."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from .intervals import Measurement, quantile, wilson_band
from .thresholds import ROUNDING, allowed_accepts

BINS_PER_CUT = 8  # with more bins, fewer scores need a binary search
MAX_BINS = 2**21  # 16 MiB of counts


@dataclass(frozen=True)
class Roc:
    r"""Counts of accepted pairs as the threshold falls; a pair is accepted when its score is ≥ the threshold.

    The first point accepts nothing (threshold ∞), the last accepts everything. Counts are integers, so every figure
    taken from them is exact and does not depend on the order of the pairs.

    >>> roc = roc_curve(torch.tensor([0.9, 0.8, 0.8, 0.1]), torch.tensor([True, True, False, False]))
    >>> roc.tar, roc.far
    (tensor([0.0000, 0.5000, 1.0000, 1.0000], dtype=torch.float64),
     tensor([0.0000, 0.0000, 0.5000, 1.0000], dtype=torch.float64))
    >>> roc.auc, roc.eer
    (0.8750 [0.5285, 1.0000], 0.2500 [0.0473, 0.7815])
    """

    thresholds: Float[Tensor, "points"]
    accepted_same: Int[Tensor, "points"]
    accepted_different: Int[Tensor, "points"]

    def __iter__(self) -> Iterator[Tensor]:
        """``far, tar, thresholds = roc``, in scikit-learn's order."""
        return iter((self.far, self.tar, self.thresholds))

    @property
    def positives(self) -> int:
        """The number of pairs of the same identity."""
        return int(self.accepted_same[-1])

    @property
    def negatives(self) -> int:
        """The number of pairs of different identities."""
        return int(self.accepted_different[-1])

    @property
    def tar(self) -> Float[Tensor, "points"]:
        """True accept rate (true positive rate) at every threshold."""
        return self.accepted_same.double() / self.positives

    @property
    def far(self) -> Float[Tensor, "points"]:
        """False accept rate (false positive rate) at every threshold."""
        return self.accepted_different.double() / self.negatives

    @property
    def auc(self) -> Measurement:
        """P(score of a same pair > score of a different pair), ties counted half, with DeLong's 95 % interval.

        Of each same pair the share of different pairs below it is taken, and of each different pair the share of same
        pairs above it; the variance is that of the first over the number of same pairs plus that of the second over the
        number of different pairs. Pairs are taken for independent.
        """
        same, different = self.accepted_same.diff(), self.accepted_different.diff()
        # Integers, so that the area is exact: pairs of pairs in the right order, counted twice.
        above = self.accepted_same[1:] + self.accepted_same[:-1]
        area = (different * above).sum().item() / (2 * self.positives * self.negatives)
        below = 2 * self.negatives - self.accepted_different[1:] - self.accepted_different[:-1]
        spread = _variance(below.double() / (2 * self.negatives), same) / self.positives
        spread += _variance(above.double() / (2 * self.positives), different) / self.negatives
        half = quantile(0.95) * math.sqrt(spread)
        return Measurement(area, max(area - half, 0.0), min(area + half, 1.0))

    @property
    def eer(self) -> Measurement:
        """Equal error rate: where FAR = 1 − TAR on the curve, straight lines between its points, with an interval.

        The interval's ends are where the lower, or the upper, ends of Wilson's 95 % intervals of the two rates cross.
        It covers the true rate at least as often as promised when pairs are independent.
        """
        low, high = (self._find_crossing(end) for end in (0, 1))
        return Measurement(self._find_crossing(None), low, high)

    def _find_crossing(self, end: int | None) -> float:
        """Return the height at which the rates of false accepts and of false rejects cross.

        The first rises and the second falls from point to point, so the crossing is found by bisection: the rates of some
        thirty points are computed, not those of all. Between the two points around it both rates are straight lines.

        Args:
            end: None for the rates themselves, 0 or 1 for the lower or upper ends of their Wilson intervals.
        """

        def at(point: int) -> tuple[float, float]:
            accepted = self.accepted_different[point : point + 1].double()
            rejected = self.positives - self.accepted_same[point : point + 1].double()
            if end is None:
                return accepted.item() / self.negatives, rejected.item() / self.positives
            bands = wilson_band(accepted, self.negatives), wilson_band(rejected, self.positives)
            return bands[0][end].item(), bands[1][end].item()

        before, after = 0, len(self.thresholds) - 1  # at the first point the rates are 0 and 1, at the last 1 and 0
        while after - before > 1:
            middle = (before + after) // 2
            far, frr = at(middle)
            before, after = (middle, after) if far < frr else (before, middle)
        (far, frr), (next_far, next_frr) = at(before), at(after)
        share = (far - frr) / ((far - frr) - (next_far - next_frr))
        return far + share * (next_far - far)

    def at_far(self, far: float, name: str = "far", negatives: str = "different pairs") -> int:
        """Return the last point with a false accept rate of at most ``far``: the lowest threshold that keeps it.

        Args:
            far: The false accept rate, in (0, 1].
            name: What an error message calls the rate.
            negatives: What an error message calls the impostors.

        Raises:
            ValueError: If there are fewer than 1/far impostors.
        """
        return (
            int(
                torch.searchsorted(
                    self.accepted_different, allowed_accepts(far, self.negatives, name, negatives), right=True
                )
            )
            - 1
        )

    def resolve_fars(self, fars: Iterable[float]) -> list[float]:
        """Return those of ``fars`` that the number of different pairs resolves, as :meth:`at_far` asks.

        >>> roc_curve(torch.rand(200), torch.arange(200) < 100).resolve_fars([0.1, 0.01, 0.001])
        [0.1, 0.01]
        """
        return resolve_rates(fars, self.negatives)


def roc_curve(scores: Shaped[Tensor, "..."], same: Shaped[Tensor, "..."]) -> Roc:
    """Compute the ROC curve of scores ``(n,)`` of pairs and whether each pair is of the same identity ``(n,)``.

    Raises:
        ValueError: If the shapes differ, a score is not finite, or one kind of pair is missing.

    >>> far, tar, thresholds = roc_curve(torch.tensor([0.9, 0.6, 0.3]), torch.tensor([True, False, True]))
    >>> far.tolist(), tar.tolist()
    ([0.0, 0.0, 1.0, 1.0], [0.0, 0.5, 0.5, 1.0])
    """
    return sorted_roc(*sort_pairs(*check_pairs(scores, same)))


def sort_pairs(scores: Float[Tensor, "n"], *columns: Shaped[Tensor, "n ..."]) -> tuple[Tensor, ...]:
    """Return the scores from the highest down, and the columns, which share their first axis, in the same order."""
    ordered, order = scores.sort(descending=True)
    return ordered, *(column[order] for column in columns)


def sorted_roc(ordered: Float[Tensor, "n"], same: Bool[Tensor, "n"]) -> Roc:
    """Compute :func:`roc_curve` of sorted pairs."""
    last = torch.ones_like(same)
    last[:-1] = ordered[1:] != ordered[:-1]  # the last pair of each run of equal scores
    same_count, all_count = same.cumsum(0)[last], torch.arange(1, len(same) + 1, device=same.device)[last]
    zero = same_count.new_zeros(1)
    return Roc(
        torch.cat([ordered.new_full((1,), torch.inf), ordered[last]]),
        torch.cat([zero, same_count]),
        torch.cat([zero, all_count - same_count]),
    )


def check_pairs(
    scores: Shaped[Tensor, "..."], same: Shaped[Tensor, "..."], *, both_kinds: bool = True
) -> tuple[Float[Tensor, "n"], Bool[Tensor, "n"]]:
    """Return scores in float64 and ``same`` as booleans; raise a ``ValueError`` if they are invalid."""
    if scores.ndim != 1 or same.shape != scores.shape:
        raise ValueError(
            f"scores and same must both have shape (n,), got {tuple(scores.shape)} and {tuple(same.shape)}"
        )
    if scores.is_complex() or scores.dtype == torch.bool:
        raise ValueError(f"scores must be real numbers, got {scores.dtype}")
    if same.dtype != torch.bool:
        if same.is_floating_point() or same.is_complex() or not ((same == 0) | (same == 1)).all():
            raise ValueError(f"same must be boolean or integers 0 and 1, got {same.dtype}")
        same = same.bool()
    if not scores.isfinite().all():
        raise ValueError(
            f"scores must be finite, got {int((~scores.isfinite()).sum())} that are not among {len(scores)}"
        )
    if both_kinds and (not same.any() or same.all()):
        raise ValueError(f"same must hold both kinds of pairs, got {int(same.sum())} same of {len(same)} pairs")
    return scores.detach().double() + 0.0, same.to(scores.device)  # + 0.0: minus zero is zero


def _variance(values: Float[Tensor, "points"], counts: Int[Tensor, "points"]) -> float:
    """Return the sample variance (n − 1) of values that occur ``counts`` times; 0 for a single value."""
    total = int(counts.sum())
    mean = (values * counts).sum() / total
    return ((values - mean).square() * counts).sum().item() / max(total - 1, 1)


def resolve_rates(rates: Iterable[float], count: int) -> list[float]:
    """Return those of some rates that ``count`` impostors resolve: at least one of them may be accepted.

    >>> resolve_rates([0.1, 0.01, 0.001], 100)
    [0.1, 0.01]
    """
    return [rate for rate in rates if rate * count >= 1 - ROUNDING]


class StreamedRoc:
    """Count different pairs chunk by chunk against the scores of the same pairs, and give the exact ROC.

    Same pairs are few (mates), different pairs are many (every probe against a million distractors). The curve has a
    corner only where a same pair lies, so it is enough to count, between every two neighboring scores of same pairs,
    how many different pairs fall there: memory grows with the same pairs alone, and nothing is rounded.
    Every figure of the :class:`Roc` (AUC, EER, TAR at any FAR) equals that of keeping all scores.

    A binary search for every score would take most of the time. Scores are therefore counted in bins of equal width. If a bin
    contains no score of a same pair, all its scores have one known place; only scores in the other bins are searched for.

    Args:
        same: The scores of all same pairs ``(m,)``, finite.
        at: Further scores at which the curve gets a point, for reading rates at given thresholds.

    >>> stream = StreamedRoc(torch.tensor([0.9, 0.8]))
    >>> for chunk in (torch.tensor([0.8, 0.1]), torch.tensor([0.85])):
    ...     stream.update(chunk)
    >>> roc = stream.roc()
    >>> float(roc.auc), roc.negatives
    (0.75, 3)
    """

    def __init__(self, same: Shaped[Tensor, "m"], at: Shaped[Tensor, "k"] | None = None):
        same = _check("same", same)
        if not len(same):
            raise ValueError("same must hold at least one score, got none")
        cuts = same if at is None else torch.cat([same, _check("at", at).to(same.device)])
        self.cuts = (cuts + 0.0).unique()  # ascending; minus zero is zero
        self.same = torch.bincount(torch.searchsorted(self.cuts, same), minlength=len(self.cuts))
        self.lowest = float("inf")
        # Place 2i is between cut i − 1 and cut i, place 2i + 1 on cut i.
        self._searched = torch.zeros(2 * len(self.cuts) + 1, dtype=torch.long, device=same.device)
        size = min(BINS_PER_CUT * len(self.cuts), MAX_BINS)
        spread = min(max(float(self.cuts[-1] - self.cuts[0]), 1e-300), 1e300)
        self._scale = (size - 3) / spread
        self._binned = torch.zeros(size, dtype=torch.long, device=same.device)
        inside = torch.bincount(self._bin(self.cuts), minlength=size)
        self._holds_cut, self._place = inside > 0, 2 * inside.cumsum(0)

    @property
    def counts(self) -> Int[Tensor, "places"]:
        """Numbers of different pairs: below the lowest score of a same pair, equal to it, between it and the next, and so on."""
        return self._searched.index_add(0, self._place, self._binned.masked_fill(self._holds_cut, 0))

    def update(self, different: Shaped[Tensor, "n"]) -> None:
        """Count the scores of further different pairs; raises ``ValueError`` if one is not finite."""
        scores = _check("different", different).to(self.cuts.device)
        if not len(scores):
            return
        self.lowest = min(self.lowest, scores.min().item() + 0.0)
        bins = self._bin(scores)
        self._binned += torch.bincount(bins, minlength=len(self._binned))
        scores = scores[self._holds_cut.index_select(0, bins).nonzero().squeeze(1)]
        before = torch.searchsorted(self.cuts, scores)
        equal = self.cuts[before.clamp_max(len(self.cuts) - 1)] == scores
        self._searched += torch.bincount(2 * before + equal, minlength=len(self._searched))

    def merge(self, other: "StreamedRoc") -> None:
        """Add the counts of another stream with the same matching pairs, of another process or shard."""
        if not torch.equal(self.cuts, other.cuts.to(self.cuts.device)):
            raise ValueError("other must count against the same scores")
        self._searched += other.counts.to(self.cuts.device)
        self.lowest = min(self.lowest, other.lowest)

    def _bin(self, scores: Float[Tensor, "n"]) -> Int[Tensor, "n"]:
        """Return the bin of each score. Bins ascend with the score; the first and the last are for scores beyond all cuts."""
        return (scores - self.cuts[0]).mul_(self._scale).clamp_(-1, len(self._binned) - 2).add_(1).int()

    def roc(self) -> Roc:
        """Return the curve of all pairs counted so far; raises ``ValueError`` if no different pair was."""
        counts = self.counts
        if not counts.any():
            raise ValueError("no different pairs were added: update must be called before roc")
        descending = self.cuts.flip(0)
        # Two points a cut: just above it, and on it. The last point accepts everything.
        above = torch.nextafter(descending, torch.full_like(descending, torch.inf))
        last = descending.new_tensor([min(self.lowest, self.cuts[0].item())])
        thresholds = torch.cat(
            [descending.new_tensor([torch.inf]), torch.stack([above, descending], 1).flatten(), last]
        )
        same = self.same.flip(0).cumsum(0)
        before = torch.cat([same.new_zeros(1), same[:-1]])
        accepted_same = torch.cat([same.new_zeros(1), torch.stack([before, same], 1).flatten(), same[-1:]])
        accepted_different = torch.cat([same.new_zeros(1), counts.flip(0).cumsum(0)])
        return Roc(thresholds, accepted_same, accepted_different)


def _check(name: str, scores: Tensor) -> Float[Tensor, "n"]:
    """Return scores in float64."""
    if scores.ndim != 1 or scores.dtype == torch.bool or scores.is_complex():
        raise ValueError(f"{name} must be real scores of shape (n,), got {scores.dtype} {tuple(scores.shape)}")
    if len(scores) and not torch.stack(scores.aminmax()).isfinite().all():  # one pass; NaN is the least and the largest
        raise ValueError(f"{name} must be finite, got {int((~scores.isfinite()).sum())} that are not")
    return scores.detach().double()
