"""Verification of a list of pairs by an embedder."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..evaluation import (
    DEFAULT_FARS,
    PairErrors,
    ScoreCalibration,
    ScoreReport,
    VerificationReport,
    calibrate_scores,
    verification,
)
from ..evaluation._verification import PairIntervals, assign_folds, rate_figures
from ..evaluation.figures import Figure, Report


def pair_report(
    scores: Float[Tensor, "n"],
    same: Bool[Tensor, "n"],
    index: Int[Tensor, "n 2"],
    *,
    fold: Int[Tensor, "n"] | None = None,
    identities: Int[Tensor, "n 2"] | None = None,
    fars: Sequence[float] = DEFAULT_FARS,
    unit: str = "cosine",
    worst: int = 20,
    seed: int = 0,
) -> "PairReport":
    """Measure scores of listed pairs: accuracy over folds, EER, TAR at ``fars`` with thresholds, and calibration.

    Probabilities are fitted to one half of the pairs (or of the folds, if given) and measured on the other. The halves may
    share people. With the two ``identities`` of each pair, intervals of EER, AUC and TAR are over identities; otherwise
    pairs are treated as independent.

    >>> scores, same = torch.linspace(0.9, 0.1, 40), torch.arange(40) < 20
    >>> float(pair_report(scores, same, torch.arange(80).view(40, 2)).verification.eer)
    0.0
    """
    found = verification(scores, same, fold=fold, seed=seed)
    halves = (fold if fold is not None else assign_folds(same, 2, seed)) % 2 == 0
    fitted = measured = None
    if all(same[half].any() and not same[half].all() for half in (halves, ~halves)):
        fitted = calibrate_scores(scores[halves], same[halves])
        measured = fitted.evaluate(scores[~halves], same[~halves])
    order = scores.argsort(descending=True, stable=True)
    accepts, rejects = order[~same[order]][:worst], order.flip(0)[same[order.flip(0)]][:worst]
    errors = [PairErrors(index[rows, 0], index[rows, 1], scores[rows]) for rows in (accepts, rejects)]
    intervals = None if identities is None else PairIntervals(scores.double(), same, identities, seed=seed)
    return PairReport(found, fitted, measured, errors[0], errors[1], tuple(fars), unit, intervals)


@dataclass(frozen=True, repr=False)
class PairReport(Report):
    """The result of :func:`pair_report`. With too few pairs, there is no calibration.

    >>> scores, same = torch.linspace(0.9, 0.1, 40), torch.arange(40) < 20
    >>> report = pair_report(scores, same, torch.arange(80).view(40, 2), fars=[0.1])
    >>> accepts, rejects = report.worst_pairs()
    >>> int(accepts.first[0]), int(rejects.first[0])  # the most similar of two people, the least similar of one
    (40, 38)
    """

    verification: VerificationReport
    calibration: ScoreCalibration | None
    calibrated: ScoreReport | None
    false_accepts: PairErrors
    false_rejects: PairErrors
    fars: tuple[float, ...]
    unit: str
    intervals: PairIntervals | None = None
    title = "verification of listed pairs"

    def figures(self) -> list[Figure]:
        """Return accuracy over folds, EER, AUC, TAR with thresholds at every rate, and calibration."""
        included = ("same pairs", "different pairs", "accuracy", "accuracy spread", "folds")
        figures = [figure for figure in self.verification.figures() if figure.name in included]
        figures += rate_figures(
            self.verification.roc, self.fars, self.verification.threshold, self.unit, self.intervals
        )
        return figures + ([] if self.calibrated is None else self.calibrated.figures())

    def worst_pairs(self) -> tuple[PairErrors, PairErrors]:
        """Return the most confident false accepts and false rejects."""
        return self.false_accepts, self.false_rejects

    def plot(self, ax: Any = None) -> tuple[Any, Any]:
        """Draw the ROC curve."""
        return self.verification.plot(ax)
