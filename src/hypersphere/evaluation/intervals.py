"""Confidence intervals of rates and means."""

import math
from statistics import NormalDist

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

TRIALS, IDENTITIES, PEOPLE = "independent trials", "identities", "people"


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
