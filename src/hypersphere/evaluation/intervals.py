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
RESAMPLES = 500  # of the intervals of a report
BLOCK = 1 << 21  # numbers that are held at a time
CACHED = 1 << 17  # numbers that fit into a processor's cache
POINTS = 2000  # thresholds of a resample
Measure = Literal["eer", "auc", "tar"]


class Measurement(float):
    """A measured number with its confidence interval: ``low ≤ value ≤ high``.

    ``over`` says what the interval is over: ``"independent trials"`` takes pairs, probes, episodes or folds for
    independent, ``"identities"`` knows that those of one identity belong together.

    >>> rate = wilson(90, 100)
    >>> rate, rate > 0.8, rate.over
    (0.9000 [0.8256, 0.9448], True, 'independent trials')
    """

    low: float
    high: float
    over: str

    def __new__(cls, value: float, low: float, high: float, over: str = TRIALS) -> "Measurement":
        """Return a float with the two ends of its interval."""
        self = super().__new__(cls, value)
        self.low, self.high, self.over = low, high, over
        return self

    def __reduce__(self) -> tuple[type["Measurement"], tuple[float, float, float, str]]:
        return Measurement, (float(self), self.low, self.high, self.over)

    @property
    def interval(self) -> tuple[float, float]:
        """``(low, high)``."""
        return self.low, self.high

    def __repr__(self) -> str:
        return f"{float(self):.4f} [{self.low:.4f}, {self.high:.4f}]"

    __str__ = __repr__


def wilson(successes: int, trials: int, confidence: float = 0.95) -> Measurement:
    r"""Return the rate p = successes/trials with Wilson's score interval, which holds up at p = 0 and p = 1.

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
    """Return the ends of :func:`wilson`'s interval for many counts out of the same number of trials.

    >>> [end.round(decimals=4).tolist() for end in wilson_band(torch.tensor([0, 5]), 10)]
    [[0.0, 0.2366], [0.2775, 0.7634]]
    """
    z, p, n = quantile(confidence), successes.double() / trials, trials
    center, half = p + z * z / (2 * n), z * (p * (1 - p) / n + z * z / (4 * n * n)).sqrt()
    low, high = (center - half) / (1 + z * z / n), (center + half) / (1 + z * z / n)
    return torch.minimum(low.clamp_min(0.0), p), torch.maximum(high.clamp_max(1.0), p)


def mean_interval(values: Shaped[Tensor, "..."], confidence: float = 0.95) -> Measurement:
    r"""Return the mean of independent values ± z·s/√n, with s the sample deviation (n − 1): episodes, seeds, folds.

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
    """Return z such that a normal variable lies within ±z deviations with probability ``confidence``.

    >>> round(quantile(0.95), 4)
    1.96
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence!r}")
    return NormalDist().inv_cdf((1 + confidence) / 2)


@functools.lru_cache(maxsize=4)
def draw_counts(count: int, start: int, stop: int, seed: int) -> Float[Tensor, "resamples count"]:
    """Return how often each of ``count`` identities is drawn in resamples ``start`` … ``stop``, ``count`` draws in each.

    >>> draw_counts(4, 0, 3, seed=0).sum(1).tolist()
    [4.0, 4.0, 4.0]
    """
    streams = (Stream(seed, RESAMPLE, i) for i in range(start, stop))
    return torch.stack([torch.bincount(s.integers(count, count), minlength=count) for s in streams]).double()


def blocks(size: int, resamples: int) -> list[tuple[int, int]]:
    """Return the first and last resamples of blocks whose weights of ``size`` trials fit into memory.

    >>> blocks(2**20, 5)
    [(0, 2), (2, 4), (4, 5)]
    """
    step = max(1, min(resamples, BLOCK // max(size, 1)))
    return [(i, min(i + step, resamples)) for i in range(0, resamples, step)]


def clustered_mean(
    values: Shaped[Tensor, "n"], groups: Int[Tensor, "n"] | None, *, resamples: int = RESAMPLES, seed: int = 0
) -> Measurement:
    r"""Return the mean of values in [0, 1] with a 95 % interval that accounts for the dependence of values in one group.

    In a resample w of groups the mean is Σ_g w_g·Σ_{i∈g} v_i / Σ_g w_g·n_g. The interval is :func:`percentiles` of it, and
    never narrower than that of independent values: Wilson's of booleans, mean ± 1.96·s/√n of others.

    Args:
        values: A value for each trial; booleans for a rate.
        groups: The identity of each trial; None takes trials for independent.
        resamples: How many resamples are drawn.
        seed: Seed of the resamples.

    >>> hits = torch.tensor([True, True, False]).repeat_interleave(20)
    >>> clustered_mean(hits, None), clustered_mean(hits, torch.arange(3).repeat_interleave(20))
    (0.6667 [0.5406, 0.7727], 0.6667 [0.0000, 1.0000])
    """
    if values.dtype == torch.bool:
        alone = wilson(int(values.sum()), len(values))
    elif len(values) > 1:
        alone = mean_interval(values)
    else:
        alone = Measurement(float(values.double().mean()), 0.0, 1.0)  # a single value has no interval
    if groups is None:
        return alone
    place = groups.unique(return_inverse=True)[1]
    count = int(place.max()) + 1
    if count < 2:
        return alone
    sizes = torch.bincount(place, minlength=count).double()
    sums = torch.zeros_like(sizes).index_add_(0, place, values.double())
    rows = []
    for start, stop in blocks(count, resamples):
        weights = draw_counts(count, start, stop, seed).to(values.device)
        rows.append((weights @ sums) / (weights @ sizes))
    return hull(percentiles(float(alone), torch.cat(rows), count), alone)


class SortedTrials:
    """Trials of two kinds in the order of their scores, so that a resample costs one pass of sums over weights.

    ``same`` are the trials to be accepted. ``base`` is how many trials each stands for, where some were drawn of many.

    >>> trials = SortedTrials(torch.tensor([0.9, 0.6, 0.3]), torch.tensor([True, False, True]))
    >>> trials.curve(torch.ones(1, 3)).auc.tolist(), trials.curve(torch.tensor([[1.0, 1.0, 0.0]])).eer.tolist()
    ([0.5], [0.0])
    """

    def __init__(self, scores: Float[Tensor, "n"], same: Bool[Tensor, "n"], base: Float[Tensor, "n"] | None = None):
        self.scores, self.order = scores.double().sort(descending=True)
        self.same = same[self.order]
        self.base = None if base is None else base[self.order].double()
        last = torch.ones_like(same)
        last[:-1] = self.scores[1:] != self.scores[:-1]
        self.last = last.nonzero().squeeze(1)

    def curve(self, weights: Float[Tensor, "r n"], *, thin: bool = False) -> "Curves":
        """Return the rates of resamples in which trial i occurs ``weights[:, i]`` times; ``thin`` as :meth:`resample`."""
        weights, last = weights.double()[:, self.order], self.thin() if thin else self.last
        if self.base is not None:
            weights = weights * self.base
        hits = torch.where(self.same, weights, 0.0).cumsum(1)[:, last]
        return Curves(hits, weights.cumsum(1)[:, last] - hits)

    def resample(self, identities: "Identities") -> "Curves":
        """Return the rates of resamples of identities, at the thresholds that :meth:`thin` keeps."""
        kept = self.thin()
        places = torch.searchsorted(kept, torch.arange(len(self.scores), device=kept.device))
        kinds = [identities.sums(self, places, len(kept), same=same).cumsum(1) for same in (True, False)]
        return Curves(*kinds)

    def thin(self) -> Int[Tensor, "points"]:
        """Return the last trial at each of about ``POINTS`` thresholds.

        Where there are more scores, thresholds are kept that part the trials to be accepted into equal shares, so that TAR is
        known to a thousandth.
        """
        kept = self.last
        if len(kept) > POINTS:
            share = self.same.cumsum(0)[kept] * POINTS // int(self.same.sum())
            changes = torch.ones_like(share, dtype=torch.bool)
            changes[:-1] = share[1:] != share[:-1]
            kept = kept[changes]
        return kept


class Identities:
    """Whose trials are: resamples of identities, summed over trials of each kind.

    A trial of one identity counts as often as that was drawn, one of two the product of both.

    Args:
        owners: ``(n, 2)`` the two identities of each pair, or ``(n,)`` the one of each trial.
        resamples: How many resamples are drawn.
        seed: Seed of the resamples.

    >>> identities = Identities(torch.tensor([[3, 3], [3, 8]]), resamples=2)
    >>> trials = SortedTrials(torch.tensor([0.9, 0.6]), torch.tensor([True, False]))
    >>> times = draw_counts(2, 0, 2, seed=0)
    >>> torch.equal(identities.sums(trials, torch.tensor([0, 0]), 1, same=False), times.prod(1, keepdim=True))
    True
    """

    def __init__(self, owners: Int[Tensor, "n 2"] | Int[Tensor, "n"], *, resamples: int = RESAMPLES, seed: int = 0):
        names, place = owners.unique(return_inverse=True)
        self.place, self.count = place.view(owners.shape), len(names)
        self.resamples, self.seed = resamples, seed

    def sums(
        self, trials: SortedTrials, places: Int[Tensor, "n"], length: int, *, same: bool
    ) -> Float[Tensor, "r length"]:
        """Return, in each resample, the weights of trials of one kind added up at their ``places``, given in their order."""
        rows = (trials.same == same).nonzero().squeeze(1)
        owners = self.place[trials.order[rows]]
        first, second = (owners, None) if owners.ndim == 1 else (owners[:, 0], None if same else owners[:, 1])
        parts = []
        for start, stop in blocks(max(self.count, length), self.resamples):
            times = draw_counts(self.count, start, stop, self.seed).T.contiguous().to(rows.device)
            total = times.new_zeros(length, stop - start)
            for part in torch.arange(len(rows), device=rows.device).split(max(1, CACHED // (stop - start))):
                weights = times[first[part]]
                if second is not None:
                    weights *= times[second[part]]
                if trials.base is not None:
                    weights *= trials.base[rows[part], None]
                total.index_add_(0, places[rows[part]], weights)
            parts.append(total.T)
        return torch.cat(parts)


class Curves:
    """TAR and FAR ``(r, points)`` of several resamples, from sums of weights; NaN where one kind does not occur."""

    def __init__(self, hits: Float[Tensor, "r p"], others: Float[Tensor, "r p"]):
        zero = hits.new_zeros(len(hits), 1)
        self.valid = (hits[:, -1] > 0) & (others[:, -1] > 0)
        self.tar = torch.cat([zero, hits / hits[:, -1:]], 1)
        self.far = torch.cat([zero, others / others[:, -1:]], 1)

    @property
    def eer(self) -> Float[Tensor, "r"]:
        """FAR = 1 − TAR at the equal error rate, by linear interpolation."""
        gap = self.far + self.tar - 1
        i = (gap < 0).sum(1, keepdim=True).clamp(1, gap.shape[1] - 1)
        before, after = gap.gather(1, i - 1), gap.gather(1, i)
        low, high = self.far.gather(1, i - 1), self.far.gather(1, i)
        found = low + before / (before - after) * (high - low)
        return self._or_nan(found.squeeze(1))

    @property
    def auc(self) -> Float[Tensor, "r"]:
        """The area under TAR over FAR, ties counted half."""
        return self._or_nan(torch.trapezoid(self.tar, self.far, dim=1))

    def tar_at(self, far: float) -> Float[Tensor, "r"]:
        """TAR at the last point whose FAR is at most ``far``."""
        i = (self.far <= far * (1 + 1e-12)).sum(1, keepdim=True) - 1
        return self._or_nan(self.tar.gather(1, i.clamp_min(0)).squeeze(1))

    def measure(self, measure: Measure, far: float) -> Float[Tensor, "r"]:
        """Return one of the three by its name."""
        return self.eer if measure == "eer" else self.auc if measure == "auc" else self.tar_at(far)

    def _or_nan(self, values: Float[Tensor, "r"]) -> Float[Tensor, "r"]:
        return values.where(self.valid, torch.nan)


def percentiles(
    value: float, rows: Float[Tensor, "r"], groups: int, center: float | None = None, over: str = IDENTITIES
) -> Measurement:
    r"""Return the 95 % percentile interval of resampled values, widened for few groups.

    The ends are the quantiles at Φ(∓√(G/(G − 1))·t), where t is the 97.5 % point of Student's distribution of G − 1 degrees of
    freedom for G groups: of many groups the usual 2.5 and 97.5 %, of few ones as wide as the interval of a mean of so few
    (the expanded percentile interval of Hesterberg, 2015). ``center`` is the measure of what was resampled, where that is
    part of what ``value`` is of; the resamples are moved by the difference. ``over`` is what the groups are.

    >>> rows = torch.linspace(0, 1, 1001, dtype=torch.float64)
    >>> percentiles(0.5, rows, 10**6), percentiles(0.5, rows, 4)
    (0.5000 [0.0250, 0.9750], 0.5000 [0.0001, 0.9999])
    """
    level = NormalDist().cdf(-math.sqrt(groups / (groups - 1)) * student_quantile(groups - 1))
    shift = 0.0 if center is None else value - center
    low, high = torch.quantile(rows + shift, rows.new_tensor([level, 1 - level])).tolist()
    return Measurement(value, min(low, value), max(high, value), over)


@functools.lru_cache(maxsize=256)
def student_quantile(degrees: int) -> float:
    r"""Return the 97.5 % point of Student's distribution with these degrees of freedom.

    With t = √ν·tan φ the density is proportional to cos^{ν−1} φ, which is summed over a grid of φ.

    >>> round(student_quantile(1), 3), round(student_quantile(10), 3), round(student_quantile(10**6), 2)
    (12.706, 2.228, 1.96)
    """
    degrees = min(degrees, 10_000)  # beyond, the normal distribution is as good
    phi = torch.linspace(-math.pi / 2, math.pi / 2, 200_001, dtype=torch.float64)
    height = phi.cos().clamp_min(0).pow(degrees - 1)
    below = torch.cumulative_trapezoid(height, phi)
    i = int(torch.searchsorted(below, 0.975 * below[-1]))
    share = float((0.975 * below[-1] - below[i - 1]) / (below[i] - below[i - 1]))
    return math.sqrt(degrees) * math.tan(float(phi[i]) + share * float(phi[1] - phi[0]))


def hull(resampled: Measurement, alone: Measurement) -> Measurement:
    """Return the resampled interval, never narrower than that of independent trials, within [0, 1].

    Where no trial failed, resamples have no failure either and say nothing; the other interval does.

    >>> hull(Measurement(1.0, 1.0, 1.0), Measurement(1.0, 0.9, 1.0))
    1.0000 [0.9000, 1.0000]
    """
    low, high = min(resampled.low, alone.low), max(resampled.high, alone.high)
    return Measurement(float(resampled), max(low, 0.0), min(high, 1.0), IDENTITIES)
