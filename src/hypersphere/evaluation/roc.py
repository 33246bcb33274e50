"""Receiver operating characteristics at all thresholds, with exact counts of ties."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from .intervals import Measurement, mark_run_ends, quantile, wilson_band
from .thresholds import ROUNDING, allowed_accepts

BINS_PER_CUT = 8  # with more bins, fewer scores need a binary search
MAX_BINS = 2**21  # 16 MiB of counts


@dataclass(frozen=True)
class Roc:
    r"""Counts of accepted pairs at descending thresholds; a pair is accepted if its score is ≥ the threshold.

    The first point accepts no pair (threshold ∞), the last point accepts all pairs. Counts are integers, so all rates
    are exact and do not depend on the order of the pairs.

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
        """Iterate over ``far, tar, thresholds``, in the order of scikit-learn."""
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

        Let a be the share of different pairs below a same pair, and b the share of same pairs above a different pair.
        The variance of the AUC is Var(a)/m + Var(b)/n for m same and n different pairs. It assumes independent pairs.
        """
        same, different = self.accepted_same.diff(), self.accepted_different.diff()
        # Twice the number of same pairs above each score, with ties counted half. Integers keep the area exact.
        above = self.accepted_same[1:] + self.accepted_same[:-1]
        area = (different * above).sum().item() / (2 * self.positives * self.negatives)
        below = 2 * self.negatives - self.accepted_different[1:] - self.accepted_different[:-1]
        spread = _variance(below.double() / (2 * self.negatives), same) / self.positives
        spread += _variance(above.double() / (2 * self.positives), different) / self.negatives
        half = quantile(0.95) * math.sqrt(spread)
        return Measurement(area, max(area - half, 0.0), min(area + half, 1.0))

    @property
    def eer(self) -> Measurement:
        """Equal error rate: FAR = 1 − TAR on the linearly interpolated curve, with a 95 % interval.

        The ends of the interval are the crossings of the lower ends, and of the upper ends, of Wilson's 95 % intervals
        of the two rates. If pairs are independent, the interval covers the true rate in at least 95 % of the cases.
        """
        low, high = (self._find_crossing(end) for end in (0, 1))
        return Measurement(self._find_crossing(None), low, high)

    def _find_crossing(self, end: int | None) -> float:
        """Return the rate at which the false accept rate and the false reject rate cross.

        From point to point, the false accept rate rises and the false reject rate falls, so bisection finds the crossing
        from the rates of about thirty points. Both rates are interpolated linearly between the two nearest points.

        Args:
            end: None for the rates, 0 or 1 for the lower or upper ends of their Wilson intervals.
        """

        def error_rates(point: int) -> tuple[float, float]:
            accepted = self.accepted_different[point : point + 1].double()
            rejected = self.positives - self.accepted_same[point : point + 1].double()
            if end is None:
                return accepted.item() / self.negatives, rejected.item() / self.positives
            bands = wilson_band(accepted, self.negatives), wilson_band(rejected, self.positives)
            return bands[0][end].item(), bands[1][end].item()

        before, after = 0, len(self.thresholds) - 1  # at the first point the rates are 0 and 1, at the last 1 and 0
        while after - before > 1:
            middle = (before + after) // 2
            far, frr = error_rates(middle)
            before, after = (middle, after) if far < frr else (before, middle)
        (far, frr), (next_far, next_frr) = error_rates(before), error_rates(after)
        share = (far - frr) / ((far - frr) - (next_far - next_frr))
        return far + share * (next_far - far)

    def at_far(self, far: float, name: str = "far", negatives: str = "different pairs") -> int:
        """Return the index of the last point, with the lowest threshold, whose false accept rate is at most ``far``.

        Args:
            far: The false accept rate, in (0, 1].
            name: Name of the rate in error messages.
            negatives: Name of the impostors in error messages.

        Raises:
            ValueError: If there are fewer than 1/far impostors.
        """
        allowed = allowed_accepts(far, self.negatives, name, negatives)
        return int(torch.searchsorted(self.accepted_different, allowed, right=True)) - 1

    def resolve_fars(self, fars: Iterable[float]) -> list[float]:
        """Return the ``fars`` that :meth:`at_far` accepts: at least one of the different pairs may be accepted.

        >>> roc_curve(torch.rand(200), torch.arange(200) < 100).resolve_fars([0.1, 0.01, 0.001])
        [0.1, 0.01]
        """
        return resolve_rates(fars, self.negatives)


def roc_curve(scores: Shaped[Tensor, "..."], same: Shaped[Tensor, "..."]) -> Roc:
    """Compute the ROC curve from the scores ``(n,)`` of pairs and from ``same`` ``(n,)``, true for pairs of one identity.

    Raises:
        ValueError: If the shapes differ, a score is not finite, or there are no same or no different pairs.

    >>> far, tar, thresholds = roc_curve(torch.tensor([0.9, 0.6, 0.3]), torch.tensor([True, False, True]))
    >>> far.tolist(), tar.tolist()
    ([0.0, 0.0, 1.0, 1.0], [0.0, 0.5, 0.5, 1.0])
    """
    return sorted_roc(*sort_pairs(*check_pairs(scores, same)))


def sort_pairs(scores: Float[Tensor, "n"], *columns: Shaped[Tensor, "n ..."]) -> tuple[Tensor, ...]:
    """Return the scores in descending order, and the columns, indexed by pair, in the same order."""
    ordered, order = scores.sort(descending=True)
    return ordered, *(column[order] for column in columns)


def sorted_roc(ordered: Float[Tensor, "n"], same: Bool[Tensor, "n"]) -> Roc:
    """Compute :func:`roc_curve` of sorted pairs."""
    last = mark_run_ends(ordered)
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
    """Return the scores in float64 and ``same`` as booleans; raise ``ValueError`` if they are invalid."""
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
    """Return the rates that ``count`` impostors resolve: at least one impostor may be accepted.

    >>> resolve_rates([0.1, 0.01, 0.001], 100)
    [0.1, 0.01]
    """
    return [rate for rate in rates if rate * count >= 1 - ROUNDING]


class StreamedRoc:
    """The exact ROC curve of a stream of different pairs, for known scores of the same pairs.

    There are few same pairs (mates) and many different pairs (every probe with a million distractors). The curve has a
    corner only at the score of a same pair, so it suffices to count the different pairs between neighboring scores of same
    pairs. Memory grows only with the number of same pairs, and nothing is rounded. All figures of the :class:`Roc` (AUC,
    EER, TAR at any FAR) equal those computed from all scores.

    A binary search for every score would take most of the time. Scores are therefore counted in bins of equal width. If
    no same pair has its score in a bin, all scores of the bin lie in the same interval. Only scores in the other bins are
    searched for.

    Args:
        same: Scores of all same pairs ``(m,)``, finite.
        at: Additional scores at which the curve gets a point, to read rates at given thresholds.

    >>> stream = StreamedRoc(torch.tensor([0.9, 0.8]))
    >>> for chunk in (torch.tensor([0.8, 0.1]), torch.tensor([0.85])):
    ...     stream.update(chunk)
    >>> roc = stream.roc()
    >>> float(roc.auc), roc.negatives
    (0.75, 3)
    """

    def __init__(self, same: Shaped[Tensor, "m"], at: Shaped[Tensor, "k"] | None = None):
        same = _check_scores("same", same)
        if not len(same):
            raise ValueError("same must hold at least one score, got none")
        cuts = same if at is None else torch.cat([same, _check_scores("at", at).to(same.device)])
        self.cuts = (cuts + 0.0).unique()  # ascending; minus zero is zero
        self.same = torch.bincount(torch.searchsorted(self.cuts, same), minlength=len(self.cuts))
        self.lowest = float("inf")
        # Interval 2i lies between cut i − 1 and cut i; interval 2i + 1 is cut i.
        self._searched_counts = torch.zeros(2 * len(self.cuts) + 1, dtype=torch.long, device=same.device)
        size = min(BINS_PER_CUT * len(self.cuts), MAX_BINS)
        spread = min(max(float(self.cuts[-1] - self.cuts[0]), 1e-300), 1e300)
        self._scale = (size - 3) / spread
        self._bin_counts = torch.zeros(size, dtype=torch.long, device=same.device)
        inside = torch.bincount(self._bin(self.cuts), minlength=size)
        self._has_cut, self._interval = inside > 0, 2 * inside.cumsum(0)

    @property
    def counts(self) -> Int[Tensor, "intervals"]:
        """Numbers of different pairs below the first cut, equal to it, between the first and the second cut, and so on."""
        return self._searched_counts.index_add(0, self._interval, self._bin_counts.masked_fill(self._has_cut, 0))

    def update(self, different: Shaped[Tensor, "n"]) -> None:
        """Count the scores of more different pairs; raise ``ValueError`` if a score is not finite."""
        scores = _check_scores("different", different).to(self.cuts.device)
        if not len(scores):
            return
        self.lowest = min(self.lowest, scores.min().item() + 0.0)
        bins = self._bin(scores)
        self._bin_counts += torch.bincount(bins, minlength=len(self._bin_counts))
        scores = scores[self._has_cut.index_select(0, bins).nonzero().squeeze(1)]
        before = torch.searchsorted(self.cuts, scores)
        equal = self.cuts[before.clamp_max(len(self.cuts) - 1)] == scores
        self._searched_counts += torch.bincount(2 * before + equal, minlength=len(self._searched_counts))

    def merge(self, other: "StreamedRoc") -> None:
        """Add the counts of another stream (process or shard) with the same scores of same pairs."""
        if not torch.equal(self.cuts, other.cuts.to(self.cuts.device)):
            raise ValueError("other must count against the same scores")
        self._searched_counts += other.counts.to(self.cuts.device)
        self.lowest = min(self.lowest, other.lowest)

    def _bin(self, scores: Float[Tensor, "n"]) -> Int[Tensor, "n"]:
        """Return the bin of each score. The first bin holds scores below all cuts, the last one scores above all cuts."""
        return (scores - self.cuts[0]).mul_(self._scale).clamp_(-1, len(self._bin_counts) - 2).add_(1).int()

    def roc(self) -> Roc:
        """Return the curve of all pairs counted so far; raise ``ValueError`` if there are no different pairs."""
        counts = self.counts
        if not counts.any():
            raise ValueError("no different pairs were added: update must be called before roc")
        descending = self.cuts.flip(0)
        # Two points per cut: just above the cut and at the cut. The last point accepts all pairs.
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


def _check_scores(name: str, scores: Tensor) -> Float[Tensor, "n"]:
    """Return the scores in float64; raise ``ValueError`` if they are invalid."""
    if scores.ndim != 1 or scores.dtype == torch.bool or scores.is_complex():
        raise ValueError(f"{name} must be real scores of shape (n,), got {scores.dtype} {tuple(scores.shape)}")
    if len(scores) and not torch.stack(scores.aminmax()).isfinite().all():  # one pass; NaN is returned as both extremes
        raise ValueError(f"{name} must be finite, got {int((~scores.isfinite()).sum())} that are not")
    return scores.detach().double()
