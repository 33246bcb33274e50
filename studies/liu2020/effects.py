"""Differences between arms: means over seeds, with paired and unpaired confidence intervals."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from hypersphere._extras import require

CONFIDENCE = 0.95
MAX_SEEDS = 200
Values = Mapping[int, float]
"""One value per seed."""


@dataclass(frozen=True)
class Estimate:
    """Mean and standard error of a metric over seeds; the error of a single seed is unknown (NaN).

    >>> Estimate.of([1.0, 2.0, 3.0])
    Estimate(mean=2.0, error=0.5773502691896258, seeds=3)
    """

    mean: float
    error: float
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate":
        """Compute the estimate from one value per seed."""
        error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
        return cls(mean(values), error, len(values))


@dataclass(frozen=True)
class Effect:
    """A difference of the means of two arms, with two 95 % intervals of Student's t.

    Args:
        mean: mean difference over the seeds that both arms have.
        reference: mean of the second arm, or the number that the first arm is compared with.
        paired: half the width of the interval of the differences per seed (same batches, same initialization).
        unpaired: half the width of Welch's interval, which ignores the pairing.
        seeds: number of pairs.

    >>> effect = Effect.between({0: 3.0, 1: 5.0, 2: 4.0}, {0: 1.0, 1: 3.1, 2: 1.9})
    >>> "{:.0f} % more, between {:.0f} % and {:.0f} %".format(*effect.relative)
    '100 % more, between 88 % and 112 %'
    """

    mean: float
    reference: float
    paired: float
    unpaired: float
    seeds: int

    @property
    def relative(self) -> tuple[float, float, float]:
        """Mean and ends of the paired interval, in percent of the absolute reference."""
        size = abs(self.reference) or math.nan
        return tuple(100 * value / size for value in (self.mean, self.mean - self.paired, self.mean + self.paired))  # type: ignore[return-value]

    def count_required_seeds(self, size: float) -> int | None:
        """Return the number of seeds with which the paired interval would be narrower than ``size``; None beyond ``MAX_SEEDS``.

        The standard deviation of the paired differences is estimated from the recorded seeds.

        >>> effect = Effect.between({0: 3.0, 1: 5.0, 2: 4.0}, {0: 1.0, 1: 4.1, 2: 1.9})
        >>> effect.count_required_seeds(1.0), effect.count_required_seeds(0.5), effect.count_required_seeds(0.001)
        (5, 10, None)
        """
        deviation = self.paired * math.sqrt(self.seeds) / compute_t_quantile(self.seeds - 1)
        counts = (
            n for n in range(2, MAX_SEEDS + 1) if compute_t_quantile(n - 1) * deviation / math.sqrt(n) < abs(size)
        )
        return next(counts, None)

    @classmethod
    def between(cls, ours: Values, other: Values | float) -> "Effect | None":
        """Compare the seeds of two arms, or one arm with a number; None if there are fewer than two pairs.

        >>> effect = Effect.between({0: 3.0, 1: 5.0, 2: 4.0}, {0: 1.0, 1: 3.1, 2: 1.9})
        >>> f"{effect.mean:.2f} ± {effect.paired:.2f}, unpaired ± {effect.unpaired:.2f}"
        '2.00 ± 0.25, unpaired ± 2.33'
        """
        if isinstance(other, float):
            values = list(ours.values())
            if len(values) < 2:
                return None
            half = compute_t_quantile(len(values) - 1) * Estimate.of(values).error
            return cls(mean(values) - other, other, half, half, len(values))
        shared = [seed for seed in ours if seed in other]
        if len(shared) < 2:
            return None
        a, b = [ours[seed] for seed in shared], [other[seed] for seed in shared]
        gaps = [x - y for x, y in zip(a, b, strict=True)]
        half = compute_t_quantile(len(gaps) - 1) * Estimate.of(gaps).error
        return cls(mean(gaps), mean(b), half, _compute_welch_half_width(a, b), len(gaps))


def compute_t_quantile(freedom: float, confidence: float = CONFIDENCE) -> float:
    """Return the two-sided quantile of Student's t distribution.

    >>> f"{compute_t_quantile(2):.3f}, {compute_t_quantile(4):.3f}"
    '4.303, 2.776'
    """
    return float(require("scipy.special").stdtrit(freedom, 0.5 + confidence / 2))


def _compute_welch_half_width(a: Sequence[float], b: Sequence[float]) -> float:
    """Return half the width of Welch's interval, with Satterthwaite's degrees of freedom."""
    va, vb = stdev(a) ** 2 / len(a), stdev(b) ** 2 / len(b)
    if va + vb == 0:
        return 0.0
    freedom = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
    return compute_t_quantile(freedom) * math.sqrt(va + vb)
