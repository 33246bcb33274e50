"""Calibration of classifiers: whether 80 % of the predictions with a confidence of 80 % are correct."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from .. import plots
from .figures import Figure, Report


def calibration(
    probabilities: Float[Tensor, "n c"], labels: Shaped[Tensor, "..."], bins: int = 15
) -> "CalibrationReport":
    r"""Compare confidence, the highest probability, with accuracy in bins (k/B, (k+1)/B] of equal width.

    Args:
        probabilities: Probabilities of the classes in rows that sum to 1; apply a softmax to logits first.
        labels: True class of each row.
        bins: Number of bins.

    >>> report = calibration(torch.tensor([[0.9, 0.1], [0.8, 0.2]]), torch.tensor([0, 1]), bins=1)
    >>> round(report.ece, 4)
    0.35
    """
    if bins < 1:
        raise ValueError(f"bins must be an integer ≥ 1, got {bins!r}")
    if labels.shape != probabilities.shape[:1] or labels.is_floating_point() or not len(labels):
        raise ValueError(
            f"labels must be an integer for each row of {tuple(probabilities.shape)}, "
            f"got {labels.dtype} {tuple(labels.shape)}"
        )
    p = probabilities.detach().double()
    tolerance = 1e-6 if probabilities.dtype in (torch.float32, torch.float64) else 1e-2
    if not ((p >= 0).all() and ((p.sum(1) - 1).abs() <= tolerance * p.shape[1] ** 0.5 + tolerance).all()):
        raise ValueError("probabilities must be non-negative rows that sum to 1; apply a softmax to logits first")
    if not 0 <= int(labels.min()) <= int(labels.max()) < p.shape[1]:
        raise ValueError(
            f"labels must be between 0 and {p.shape[1] - 1}, got {int(labels.min())} to {int(labels.max())}"
        )
    confidence, predicted = p.max(1)
    index = (confidence * bins).ceil().long().clamp(1, bins) - 1
    sums = p.new_zeros(3, bins)
    sums.index_add_(1, index, torch.stack([torch.ones_like(confidence), confidence, (predicted == labels).double()]))
    brier = (p - torch.nn.functional.one_hot(labels.long(), p.shape[1])).square().sum(1).mean().item()
    return CalibrationReport(sums[0].long(), sums[1] / sums[0].clamp_min(1), sums[2] / sums[0].clamp_min(1), brier)


def expected_calibration_error(
    probabilities: Float[Tensor, "n c"], labels: Shaped[Tensor, "..."], bins: int = 15
) -> float:
    r"""Return Σ_b n_b/n·|accuracy_b − confidence_b|, the ``ece`` of :func:`calibration`.

    >>> round(expected_calibration_error(torch.tensor([[0.9, 0.1], [0.8, 0.2]]), torch.tensor([0, 1]), bins=1), 4)
    0.35
    """
    return calibration(probabilities, labels, bins).ece


@dataclass(frozen=True, repr=False)
class CalibrationReport(Report):
    """Count, mean confidence and accuracy per bin, and the Brier score, the mean of Σ_c (p_c − [c = y])².

    >>> probabilities = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4]])
    >>> report = calibration(probabilities, torch.tensor([0, 1, 0]), bins=4)
    >>> report.counts.tolist(), report.accuracy.tolist(), round(report.mce, 2)
    ([0, 0, 1, 2], [0.0, 0.0, 1.0, 0.5], 0.4)
    """

    counts: Int[Tensor, "bins"]
    confidence: Float[Tensor, "bins"]
    accuracy: Float[Tensor, "bins"]
    brier: float
    title = "calibration"

    @property
    def ece(self) -> float:
        """Expected calibration error."""
        return ((self.counts * (self.accuracy - self.confidence).abs()).sum() / self.counts.sum()).item()

    @property
    def mce(self) -> float:
        """Maximum calibration error: the largest |accuracy − confidence| of all bins with samples."""
        return (self.accuracy - self.confidence).abs()[self.counts > 0].max().item()

    def figures(self) -> list[Figure]:
        """Return expected and maximum calibration error and the Brier score."""
        samples = int(self.counts.sum())
        return [
            Figure("samples", samples, "samples"),
            Figure("ECE", self.ece, "fraction", count=samples),
            Figure("MCE", self.mce, "fraction", count=samples),
            Figure("Brier score", self.brier, count=samples),
        ]

    def plot(self, ax: Any = None) -> tuple[Any, Any]:
        """Draw the reliability diagram: accuracy over confidence per bin; a perfect calibration lies on the diagonal."""
        title = f"{self.title}, ECE {100 * self.ece:.3g} %"
        return plots.plot_reliability(self.confidence, self.accuracy, self.counts, title=title, ax=ax)
