"""Confidence intervals of rates and means, in closed form and by resampling identities."""

import functools
import math
from statistics import NormalDist
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from ..data.streams import RESAMPLE, Stream

TRIALS, IDENTITIES, PEOPLE = "independent trials", "identities", "people"
RESAMPLES = 500  # resamples per interval of a report
MAX_WEIGHTS = 1 << 21  # weights in memory at a time
CACHED_WEIGHTS = 1 << 17  # weights that fit into the cache of a processor
MAX_THRESHOLDS = 2000  # thresholds per resample
Measure = Literal["eer", "auc", "tar"]


class Measurement(float):
    """A measured number with its confidence interval: ``low ≤ value ≤ high``.

    ``over`` names the unit that varies: ``"independent trials"`` treats pairs, probes, episodes or folds as independent,
    ``"identities"`` accounts for the dependence of trials of one identity.

    >>> rate = wilson(90, 100)
    >>> rate, rate > 0.8, rate.over
    (0.9000 [0.8256, 0.9448], True, 'independent trials')
    """

    low: float
    high: float
    over: str

    def __new__(cls, value: float, low: float, high: float, over: str = TRIALS) -> "Measurement":
        """Return a float with an interval."""
        self = super().__new__(cls, value)
        self.low, self.high, self.over = low, high, over
        return self

    def __reduce__(self) -> tuple[type["Measurement"], tuple[float, float, float, str]]:
        return Measurement, (float(self), self.low, self.high, self.over)

    @property
    def interval(self) -> tuple[float, float]:
        """The ends ``(low, high)``."""
        return self.low, self.high

    def __repr__(self) -> str:
        return f"{float(self):.4f} [{self.low:.4f}, {self.high:.4f}]"

    __str__ = __repr__


def wilson(successes: int, trials: int, confidence: float = 0.95) -> Measurement:
    r"""Return the rate p = successes/trials with Wilson's score interval, which is also valid at p = 0 and p = 1.

    (p + z²/2n ± z·√(p(1−p)/n + z²/4n²)) / (1 + z²/n), with z the normal quantile of ``confidence``.

    >>> wilson(0, 10)
    0.0000 [0.0000, 0.2775]
    """
    if trials < 1 or not 0 <= successes <= trials:
        raise ValueError(f"successes must be between 0 and trials ≥ 1, got {successes} of {trials}")
    low, high = wilson_band(torch.tensor([successes]), trials, confidence)
    return Measurement(successes / trials, low.item(), high.item())


def wilson_band(
    successes: Shaped[Tensor, "n"], trials: int, confidence: float = 0.95
) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"]]:
    """Return the ends of the interval of :func:`wilson` for many success counts of the same number of trials.

    >>> [end.round(decimals=4).tolist() for end in wilson_band(torch.tensor([0, 5]), 10)]
    [[0.0, 0.2366], [0.2775, 0.7634]]
    """
    z, p, n = quantile(confidence), successes.double() / trials, trials
    center, half = p + z * z / (2 * n), z * (p * (1 - p) / n + z * z / (4 * n * n)).sqrt()
    low, high = (center - half) / (1 + z * z / n), (center + half) / (1 + z * z / n)
    return torch.minimum(low.clamp_min(0.0), p), torch.maximum(high.clamp_max(1.0), p)


def mean_interval(values: Shaped[Tensor, "..."], confidence: float = 0.95) -> Measurement:
    r"""Return the mean of independent values (episodes, seeds, folds) ± z·s/√n, with s the sample deviation (n − 1).

    >>> import torch
    >>> mean_interval(torch.tensor([0.0, 1.0, 0.0, 1.0]))
    0.5000 [-0.0658, 1.0658]
    """
    if values.ndim != 1 or len(values) < 2:
        raise ValueError(f"values must be one-dimensional with at least two entries, got shape {tuple(values.shape)}")
    values = values.double()
    mean, half = values.mean().item(), quantile(confidence) * values.std().item() / math.sqrt(len(values))
    return Measurement(mean, mean - half, mean + half)


def quantile(confidence: float) -> float:
    """Return z such that a normal variable lies within ±z standard deviations with probability ``confidence``.

    >>> round(quantile(0.95), 4)
    1.96
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence!r}")
    return NormalDist().inv_cdf((1 + confidence) / 2)


@functools.lru_cache(maxsize=4)
def draw_counts(count: int, start: int, stop: int, seed: int) -> Float[Tensor, "resamples count"]:
    """Return how often each of ``count`` identities is drawn in resamples ``start`` … ``stop − 1`` of ``count`` draws each.

    >>> draw_counts(4, 0, 3, seed=0).sum(1).tolist()
    [4.0, 4.0, 4.0]
    """
    streams = (Stream(seed, RESAMPLE, i) for i in range(start, stop))
    return torch.stack([torch.bincount(s.integers(count, count), minlength=count) for s in streams]).double()


def split_resamples(size: int, resamples: int) -> list[tuple[int, int]]:
    """Split resamples into blocks ``(start, stop)`` whose weights, ``size`` per resample, fit into memory.

    >>> split_resamples(2**20, 5)
    [(0, 2), (2, 4), (4, 5)]
    """
    step = max(1, min(resamples, MAX_WEIGHTS // max(size, 1)))
    return [(i, min(i + step, resamples)) for i in range(0, resamples, step)]


def clustered_mean(
    values: Shaped[Tensor, "n"], groups: Int[Tensor, "n"] | None, *, resamples: int = RESAMPLES, seed: int = 0
) -> Measurement:
    r"""Return the mean of values in [0, 1] with a 95 % interval that accounts for the dependence of values in one group.

    The mean of a resample with group weights w is Σ_g w_g·Σ_{i∈g} v_i / Σ_g w_g·n_g. The interval is the
    :func:`percentile_interval` of these means, and never narrower than that of independent values: Wilson's for booleans,
    mean ± 1.96·s/√n otherwise.

    Args:
        values: Value of each trial; booleans for a rate.
        groups: Identity of each trial; None treats trials as independent.
        resamples: Number of resamples.
        seed: Seed of the resamples.

    >>> hits = torch.tensor([True, True, False]).repeat_interleave(20)
    >>> clustered_mean(hits, None), clustered_mean(hits, torch.arange(3).repeat_interleave(20))
    (0.6667 [0.5406, 0.7727], 0.6667 [0.0000, 1.0000])
    """
    if values.dtype == torch.bool:
        independent = wilson(int(values.sum()), len(values))
    elif len(values) > 1:
        independent = mean_interval(values)
    else:
        independent = Measurement(float(values.double().mean()), 0.0, 1.0)  # a single value has no interval
    if groups is None:
        return independent
    group = groups.unique(return_inverse=True)[1]
    count = int(group.max()) + 1
    if count < 2:
        return independent
    sizes = torch.bincount(group, minlength=count).double()
    sums = torch.zeros_like(sizes).index_add_(0, group, values.double())
    means = []
    for start, stop in split_resamples(count, resamples):
        weights = draw_counts(count, start, stop, seed).to(values.device)
        means.append((weights @ sums) / (weights @ sizes))
    return widen_interval(percentile_interval(float(independent), torch.cat(means), count), independent)


def mark_run_ends(values: Shaped[Tensor, "n"]) -> Bool[Tensor, "n"]:
    """Return which entries are the last ones of a run of equal values.

    >>> mark_run_ends(torch.tensor([0.9, 0.5, 0.5])).tolist()
    [True, False, True]
    """
    ends = torch.ones_like(values, dtype=torch.bool)
    ends[:-1] = values[1:] != values[:-1]
    return ends


class SortedTrials:
    """Trials sorted by score, so that the rates of a resample are cumulative sums of its weights.

    ``same`` marks the trials that should be accepted. If the trials are a sample, ``base`` is the number of trials that each
    represents.

    >>> trials = SortedTrials(torch.tensor([0.9, 0.6, 0.3]), torch.tensor([True, False, True]))
    >>> trials.curve(torch.ones(1, 3)).auc.tolist(), trials.curve(torch.tensor([[1.0, 1.0, 0.0]])).eer.tolist()
    ([0.5], [0.0])
    """

    def __init__(self, scores: Float[Tensor, "n"], same: Bool[Tensor, "n"], base: Float[Tensor, "n"] | None = None):
        self.scores, self.order = scores.double().sort(descending=True)
        self.same = same[self.order]
        self.base = None if base is None else base[self.order].double()
        self.last = mark_run_ends(self.scores).nonzero().squeeze(1)

    def curve(self, weights: Float[Tensor, "r n"], *, selected: bool = False) -> "Curves":
        """Return the rates of resamples in which trial i occurs ``weights[:, i]`` times.

        With ``selected``, rates are computed only at the thresholds of :meth:`select_thresholds`.
        """
        weights, last = weights.double()[:, self.order], self.select_thresholds() if selected else self.last
        if self.base is not None:
            weights = weights * self.base
        hits = torch.where(self.same, weights, 0.0).cumsum(1)[:, last]
        return Curves(hits, weights.cumsum(1)[:, last] - hits)

    def resample(self, identities: "Identities") -> "Curves":
        """Return the rates of resamples of identities at the thresholds of :meth:`select_thresholds`."""
        kept = self.select_thresholds()
        bins = torch.searchsorted(kept, torch.arange(len(self.scores), device=kept.device))
        hits, others = (identities.sum_weights(self, bins, len(kept), same=same).cumsum(1) for same in (True, False))
        return Curves(hits, others)

    def select_thresholds(self) -> Int[Tensor, "points"]:
        """Return the index of the last accepted trial at each of about ``MAX_THRESHOLDS`` thresholds.

        If there are more distinct scores, the thresholds divide the trials in ``same`` into equal shares, so that TAR is
        accurate to a thousandth.
        """
        kept = self.last
        if len(kept) > MAX_THRESHOLDS:
            share = self.same.cumsum(0)[kept] * MAX_THRESHOLDS // int(self.same.sum())
            kept = kept[mark_run_ends(share)]
        return kept


class Identities:
    """The identities of trials, which are resampled to weight the trials.

    In a resample, the weight of a trial of one identity is the number of times this identity was drawn. The weight of a pair
    of two identities is the product of their numbers.

    Args:
        owners: Identities of each pair ``(n, 2)``, or the identity of each trial ``(n,)``.
        resamples: Number of resamples.
        seed: Seed of the resamples.

    >>> identities = Identities(torch.tensor([[3, 3], [3, 8]]), resamples=2)
    >>> trials = SortedTrials(torch.tensor([0.9, 0.6]), torch.tensor([True, False]))
    >>> times = draw_counts(2, 0, 2, seed=0)
    >>> torch.equal(identities.sum_weights(trials, torch.tensor([0, 0]), 1, same=False), times.prod(1, keepdim=True))
    True
    """

    def __init__(self, owners: Int[Tensor, "n 2"] | Int[Tensor, "n"], *, resamples: int = RESAMPLES, seed: int = 0):
        names, owner = owners.unique(return_inverse=True)
        self.owner, self.count = owner.view(owners.shape), len(names)
        self.resamples, self.seed = resamples, seed

    def sum_weights(
        self, trials: SortedTrials, bins: Int[Tensor, "n"], length: int, *, same: bool
    ) -> Float[Tensor, "r length"]:
        """Return the sums of the weights of all same (or different) trials in each of ``length`` bins, for each resample.

        ``bins`` is the bin of each trial, in the order of ``trials``.
        """
        rows = (trials.same == same).nonzero().squeeze(1)
        owners = self.owner[trials.order[rows]]
        first, second = (owners, None) if owners.ndim == 1 else (owners[:, 0], None if same else owners[:, 1])
        parts = []
        for start, stop in split_resamples(max(self.count, length), self.resamples):
            times = draw_counts(self.count, start, stop, self.seed).T.contiguous().to(rows.device)
            total = times.new_zeros(length, stop - start)
            for part in torch.arange(len(rows), device=rows.device).split(max(1, CACHED_WEIGHTS // (stop - start))):
                weights = times[first[part]]
                if second is not None:
                    weights *= times[second[part]]
                if trials.base is not None:
                    weights *= trials.base[rows[part], None]
                total.index_add_(0, bins[rows[part]], weights)
            parts.append(total.T)
        return torch.cat(parts)


class Curves:
    """TAR and FAR ``(r, points)`` of r resamples, from cumulative sums of the weights of same and different trials.

    Measures are NaN for resamples without same or without different trials.
    """

    def __init__(self, hits: Float[Tensor, "r p"], others: Float[Tensor, "r p"]):
        zero = hits.new_zeros(len(hits), 1)
        self.valid = (hits[:, -1] > 0) & (others[:, -1] > 0)
        self.tar = torch.cat([zero, hits / hits[:, -1:]], 1)
        self.far = torch.cat([zero, others / others[:, -1:]], 1)

    @property
    def eer(self) -> Float[Tensor, "r"]:
        """Equal error rates, where FAR = 1 − TAR, by linear interpolation."""
        gap = self.far + self.tar - 1
        i = (gap < 0).sum(1, keepdim=True).clamp(1, gap.shape[1] - 1)
        before, after = gap.gather(1, i - 1), gap.gather(1, i)
        low, high = self.far.gather(1, i - 1), self.far.gather(1, i)
        crossing = low + before / (before - after) * (high - low)
        return self._mask_invalid(crossing.squeeze(1))

    @property
    def auc(self) -> Float[Tensor, "r"]:
        """Areas under the ROC curves, ties counted half."""
        return self._mask_invalid(torch.trapezoid(self.tar, self.far, dim=1))

    def tar_at(self, far: float) -> Float[Tensor, "r"]:
        """Return TAR at the last point whose FAR is at most ``far``."""
        i = (self.far <= far * (1 + 1e-12)).sum(1, keepdim=True) - 1
        return self._mask_invalid(self.tar.gather(1, i.clamp_min(0)).squeeze(1))

    def measure(self, measure: Measure, far: float) -> Float[Tensor, "r"]:
        """Return the measure with this name."""
        return self.eer if measure == "eer" else self.auc if measure == "auc" else self.tar_at(far)

    def _mask_invalid(self, values: Float[Tensor, "r"]) -> Float[Tensor, "r"]:
        return values.where(self.valid, torch.nan)


def percentile_interval(
    value: float, rows: Float[Tensor, "r"], groups: int, center: float | None = None, over: str = IDENTITIES
) -> Measurement:
    r"""Return the 95 % percentile interval of resampled values, widened for few groups.

    This is the expanded percentile interval of Hesterberg (2015). For G groups its ends are the quantiles at
    Φ(∓√(G/(G − 1))·t), where t is the 97.5 % point of Student's distribution with G − 1 degrees of freedom. These are 2.5 and
    97.5 % for many groups; for few groups the interval is as wide as Student's interval of a mean.

    Args:
        value: Measure of all data.
        rows: Measures of the resamples.
        groups: Number of groups G.
        center: Measure of the data that was resampled, if only a part of it was; the resamples are shifted by the difference.
        over: Name of the groups in the result.

    >>> rows = torch.linspace(0, 1, 1001, dtype=torch.float64)
    >>> percentile_interval(0.5, rows, 10**6), percentile_interval(0.5, rows, 4)
    (0.5000 [0.0250, 0.9750], 0.5000 [0.0001, 0.9999])
    """
    level = NormalDist().cdf(-math.sqrt(groups / (groups - 1)) * student_quantile(groups - 1))
    shift = 0.0 if center is None else value - center
    low, high = torch.quantile(rows + shift, rows.new_tensor([level, 1 - level])).tolist()
    return Measurement(value, min(low, value), max(high, value), over)


@functools.lru_cache(maxsize=256)
def student_quantile(degrees: int) -> float:
    r"""Return the 97.5 % point of Student's distribution with ν = ``degrees`` degrees of freedom.

    With t = √ν·tan φ the density is proportional to cos^{ν−1} φ, which is integrated over a grid of φ.

    >>> round(student_quantile(1), 3), round(student_quantile(10), 3), round(student_quantile(10**6), 2)
    (12.706, 2.228, 1.96)
    """
    degrees = min(degrees, 10_000)  # the result hardly changes beyond
    phi = torch.linspace(-math.pi / 2, math.pi / 2, 200_001, dtype=torch.float64)
    height = phi.cos().clamp_min(0).pow(degrees - 1)
    below = torch.cumulative_trapezoid(height, phi)
    i = int(torch.searchsorted(below, 0.975 * below[-1]))
    share = float((0.975 * below[-1] - below[i - 1]) / (below[i] - below[i - 1]))
    return math.sqrt(degrees) * math.tan(float(phi[i]) + share * float(phi[1] - phi[0]))


def widen_interval(resampled: Measurement, independent: Measurement) -> Measurement:
    """Widen the resampled interval to include that of independent trials, within [0, 1].

    If no trial failed, no resample fails either, and only the interval of independent trials is informative.

    >>> widen_interval(Measurement(1.0, 1.0, 1.0), Measurement(1.0, 0.9, 1.0))
    1.0000 [0.9000, 1.0000]
    """
    low, high = min(resampled.low, independent.low), max(resampled.high, independent.high)
    return Measurement(float(resampled), max(low, 0.0), min(high, 1.0), IDENTITIES)
