"""Calibration of scores to probabilities that two images show the same identity."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from .. import plots
from .figures import Figure, Report
from .roc import check_pairs

MIN_PROBABILITY = 1e-6  # isotonic fits reach 0 and 1, which no finite number of pairs justifies


class ScoreCalibration(ABC):
    """A map from scores to log-likelihood ratios, and to probabilities at any prior.

    >>> class Scaled(ScoreCalibration):
    ...     def log_odds(self, scores):
    ...         return 10.0 * (scores.double() - 0.4)
    >>> Scaled().probability(torch.tensor([0.4, 0.6]), prior=0.5).round(decimals=3).tolist()
    [0.5, 0.881]
    """

    @abstractmethod
    def log_odds(self, scores: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
        """Return log P(score | same) − log P(score | different) of scores ``(n,)``, in float64."""

    def probability(self, scores: Float[Tensor, "n"], prior: float = 0.5) -> Float[Tensor, "n"]:
        """Return the probability that each pair is of one identity, for the prior probability ``prior``."""
        if not 0 < prior < 1:
            raise ValueError(f"prior must be between 0 and 1, got {prior!r}")
        return torch.sigmoid(self.log_odds(scores) + math.log(prior / (1 - prior)))

    def evaluate(self, scores: Shaped[Tensor, "..."], same: Shaped[Tensor, "..."], bins: int = 15) -> "ScoreReport":
        """Measure the probabilities on other pairs; same and different pairs have equal total weight (prior ½)."""
        scores, same = check_pairs(scores, same)
        return score_report(self.probability(scores), same, bins)


@dataclass(frozen=True)
class LogisticCalibration(ScoreCalibration):
    """Logistic calibration (Platt): log-odds = ``slope``·score + ``offset``.

    >>> calibration = LogisticCalibration(slope=10.0, offset=-4.0)
    >>> [round(calibration.probability(torch.tensor([0.6]), prior).item(), 3) for prior in (0.5, 0.01)]
    [0.881, 0.069]
    """

    slope: float
    offset: float

    def log_odds(self, scores: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
        """Return slope·score + offset."""
        return self.slope * scores.double() + self.offset


@dataclass(frozen=True)
class IsotonicCalibration(ScoreCalibration):
    """Isotonic calibration: linear interpolation of ``probabilities`` ``(k,)`` at ``scores`` ``(k,)``, constant beyond them.

    >>> fitted = calibrate_scores(torch.tensor([0.1, 0.3, 0.4, 0.8]), torch.tensor([0, 1, 0, 1]), "isotonic")
    >>> fitted.probability(torch.tensor([0.1, 0.35, 0.6])).round(decimals=2).tolist()
    [0.0, 0.5, 0.75]
    """

    scores: Float[Tensor, "k"]
    probabilities: Float[Tensor, "k"]

    def log_odds(self, scores: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
        """Return the log-odds of the interpolated probabilities, which are limited to 10⁻⁶ … 1 − 10⁻⁶."""
        known, values = self.scores.cpu().numpy(), self.probabilities.cpu().numpy()
        p = np.interp(scores.detach().double().cpu().numpy(), known, values)
        return torch.from_numpy(p).clamp(MIN_PROBABILITY, 1 - MIN_PROBABILITY).logit().to(scores.device)


def calibrate_scores(
    scores: Shaped[Tensor, "..."], same: Shaped[Tensor, "..."], method: Literal["logistic", "isotonic"] = "logistic"
) -> ScoreCalibration:
    """Fit a calibration of scores ``(n,)``, higher for the same identity, to probabilities.

    Same and different pairs have equal total weight in the fit, so the result holds for a prior of ½;
    :meth:`ScoreCalibration.probability` converts it to another prior. The people in the calibration pairs should be neither
    training nor evaluation identities.

    Args:
        scores: Scores of pairs.
        same: Whether each pair is of one identity.
        method: ``"logistic"`` fits a line to the log-odds. It uses Platt's targets (N₊ + 1)/(N₊ + 2) and 1/(N₋ + 2), so
            that the fit is finite even if the scores of same and different pairs do not overlap. ``"isotonic"`` fits the
            best increasing function, which needs thousands of pairs.

    >>> fitted = calibrate_scores(torch.tensor([0.9, 0.8, 0.4, 0.5, 0.1, 0.0]), torch.arange(6) < 3)
    >>> fitted.probability(torch.tensor([0.0, 0.45, 1.0])).round(decimals=2).tolist()
    [0.2, 0.5, 0.85]
    """
    scores, same = check_pairs(scores, same)
    if method == "logistic":
        return _fit_logistic(scores, same)
    if method == "isotonic":
        return _fit_isotonic(scores, same)
    raise ValueError(f"method must be 'logistic' or 'isotonic', got {method!r}")


def score_report(probabilities: Float[Tensor, "n"], same: Bool[Tensor, "n"], bins: int = 15) -> "ScoreReport":
    """Return Brier score, calibration error and log loss of probabilities; same and different pairs have a weight of ½ each.

    >>> report = score_report(torch.tensor([0.9, 0.2]), torch.tensor([True, False]))
    >>> round(report.brier, 4), round(report.ece, 4)
    (0.025, 0.15)
    """
    if bins < 1:
        raise ValueError(f"bins must be an integer ≥ 1, got {bins!r}")
    p, y = probabilities.detach().double(), same.double()
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError("probabilities must lie between 0 and 1")
    weight = _compute_weights(same)
    index = (p * bins).long().clamp_max(bins - 1)
    sums = p.new_zeros(3, bins).index_add_(1, index, torch.stack([weight, weight * p, weight * y]))
    brier = (weight * (p - y).square()).sum().item()
    loss = -(weight * torch.where(same, p, 1 - p).clamp_min(1e-300).log()).sum().item()
    counts, total = torch.bincount(index, minlength=bins), sums[0].clamp_min(1e-300)
    return ScoreReport(counts, sums[0], sums[1] / total, sums[2] / total, brier, loss / math.log(2))


@dataclass(frozen=True, repr=False)
class ScoreReport(Report):
    """Count, weight, mean probability and share of same pairs per bin; Brier score; log loss in bits.

    >>> scores, same = torch.linspace(0.9, 0.1, 40), torch.arange(40) < 20
    >>> report = LogisticCalibration(slope=20.0, offset=-10.0).evaluate(scores, same)
    >>> report.brier < 0.25, report.loss < 1  # a constant probability of ½ has 0.25 and 1
    (True, True)
    """

    counts: Int[Tensor, "bins"]
    weight: Float[Tensor, "bins"]
    confidence: Float[Tensor, "bins"]
    observed: Float[Tensor, "bins"]
    brier: float
    loss: float
    title = "calibration of scores"

    @property
    def ece(self) -> float:
        """Expected calibration error: the weighted mean over bins of |mean probability − observed share|."""
        return (self.weight * (self.observed - self.confidence).abs()).sum().item()

    def figures(self) -> list[Figure]:
        """Return calibration error, Brier score and log loss; a constant probability of ½ has 0.25 and 1 bit."""
        pairs = int(self.counts.sum())
        return [
            Figure("calibration ECE", self.ece, "fraction", count=pairs),
            Figure("calibration Brier score", self.brier, count=pairs),
            Figure("calibration log loss", self.loss, "bits", count=pairs),
        ]

    def plot(self, ax: Any = None) -> tuple[Any, Any]:
        """Draw the observed share of same pairs over the probability."""
        return plots.plot_reliability(
            self.confidence, self.observed, self.counts, ylabel="share of same pairs", title=self.title, ax=ax
        )


def _compute_weights(same: Bool[Tensor, "n"]) -> Float[Tensor, "n"]:
    """Return weights of pairs that sum to ½ over same pairs and to ½ over different pairs."""
    positives = int(same.sum())
    weight = torch.full(same.shape, 0.5 / max(len(same) - positives, 1), dtype=torch.float64, device=same.device)
    return weight.masked_fill(same, 0.5 / max(positives, 1))


def _fit_logistic(scores: Float[Tensor, "n"], same: Bool[Tensor, "n"]) -> LogisticCalibration:
    """Minimize the weighted cross-entropy with Platt's targets by Newton's method, halving steps until the loss decreases."""
    weight, positives = _compute_weights(same), int(same.sum())
    target = torch.where(same, (positives + 1) / (positives + 2), 1 / (len(same) - positives + 2)).double()
    mean, deviation = scores.mean(), scores.std(correction=0)
    deviation = torch.where(deviation > 0, deviation, 1)
    design = torch.stack([(scores - mean) / deviation, torch.ones_like(scores)], 1)
    beta = design.new_zeros(2)

    def loss(b: Tensor) -> Tensor:
        z = design @ b
        return (weight * (torch.nn.functional.softplus(z) - target * z)).sum()

    for _ in range(100):
        p = torch.sigmoid(design @ beta)
        gradient = design.T @ (weight * (p - target))
        curvature = (design * (weight * p * (1 - p))[:, None]).T @ design + 1e-15 * torch.eye(2).to(design)
        step = torch.linalg.solve(curvature, gradient)
        while loss(beta - step) > loss(beta) and step.abs().max() > 1e-14:
            step = step / 2
        beta = beta - step
        if step.abs().max() < 1e-12:
            break
    slope = (beta[0] / deviation).item()
    return LogisticCalibration(slope, (beta[1] - beta[0] * mean / deviation).item())


def _fit_isotonic(scores: Float[Tensor, "n"], same: Bool[Tensor, "n"]) -> IsotonicCalibration:
    """Pool adjacent violators: merge equal scores, then neighboring blocks with decreasing means."""
    values, index = scores.unique(return_inverse=True)
    weight = _compute_weights(same)
    total = values.new_zeros(len(values)).index_add_(0, index, weight)
    positive = values.new_zeros(len(values)).index_add_(0, index, weight * same)
    blocks: list[tuple[float, float, int]] = []  # sum of targets, weight, number of scores
    for block in zip(positive.tolist(), total.tolist(), [1] * len(values), strict=True):
        while blocks and blocks[-1][0] * block[1] >= block[0] * blocks[-1][1]:
            last = blocks.pop()
            block = (last[0] + block[0], last[1] + block[1], last[2] + block[2])
        blocks.append(block)
    means = torch.tensor([target / mass for target, mass, _ in blocks], dtype=torch.float64)
    sizes = torch.tensor([size for _, _, size in blocks])
    ends = sizes.cumsum(0) - 1
    kept = torch.cat([ends - sizes + 1, ends]).unique()  # the first and the last score of each block suffice
    return IsotonicCalibration(values.cpu()[kept], means.repeat_interleave(sizes)[kept])
