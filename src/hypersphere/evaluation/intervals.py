"""How sure a measured rate or mean is."""

import math
from statistics import NormalDist

from jaxtyping import Shaped
from torch import Tensor


class Estimate(float):
    """A number that knows its confidence interval: ``low ≤ value ≤ high``.

    >>> rate = wilson(90, 100)
    >>> rate, rate > 0.8
    (0.9000 [0.8256, 0.9448], True)
    """

    low: float
    high: float

    def __new__(cls, value: float, low: float, high: float) -> "Estimate":
        """A float with two more numbers."""
        self = super().__new__(cls, value)
        self.low, self.high = low, high
        return self

    def __reduce__(self) -> tuple[type["Estimate"], tuple[float, float, float]]:
        return Estimate, (float(self), self.low, self.high)

    @property
    def interval(self) -> tuple[float, float]:
        """``(low, high)``."""
        return self.low, self.high

    def __repr__(self) -> str:
        return f"{float(self):.4f} [{self.low:.4f}, {self.high:.4f}]"

    __str__ = __repr__


def wilson(successes: int, trials: int, confidence: float = 0.95) -> Estimate:
    r"""A rate p = successes/trials with Wilson's score interval, which holds up at p = 0 and p = 1.

    (p + z²/2n ± z·√(p(1−p)/n + z²/4n²)) / (1 + z²/n), with z the normal quantile of ``confidence``.
    """
    if trials < 1 or not 0 <= successes <= trials:
        raise ValueError(f"successes must be between 0 and trials ≥ 1, got {successes} of {trials}")
    z, p, n = _quantile(confidence), successes / trials, trials
    centre, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = (centre - half) / (1 + z * z / n), (centre + half) / (1 + z * z / n)
    return Estimate(p, min(max(low, 0.0), p), max(min(high, 1.0), p))


def mean_interval(values: Shaped[Tensor, "..."], confidence: float = 0.95) -> Estimate:
    r"""The mean of independent values ± z·s/√n, with s the sample deviation (n − 1): episodes, seeds, folds.

    >>> import torch
    >>> mean_interval(torch.tensor([0.0, 1.0, 0.0, 1.0]))
    0.5000 [-0.0658, 1.0658]
    """
    if values.ndim != 1 or len(values) < 2:
        raise ValueError(f"values must be one-dimensional with at least two entries, got shape {tuple(values.shape)}")
    values = values.double()
    mean, half = values.mean().item(), _quantile(confidence) * values.std().item() / math.sqrt(len(values))
    return Estimate(mean, mean - half, mean + half)


def _quantile(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence!r}")
    return NormalDist().inv_cdf((1 + confidence) / 2)
