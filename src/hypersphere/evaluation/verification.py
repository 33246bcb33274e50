"""Are two images of the same identity? Accuracy by k-fold protocol, EER, AUC and TAR at FAR."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from .intervals import Estimate, wilson
from .report import Number, Report
from .roc import Roc, check_pairs, sort_pairs, sorted_roc


def verification(
    scores: Shaped[Tensor, "..."],
    same: Shaped[Tensor, "..."],
    folds: int = 10,  # LFW's
    *,
    fold: Shaped[Tensor, "..."] | None = None,
    seed: int = 0,
) -> "VerificationReport":
    r"""Evaluate scores of pairs ``(n,)`` against ``same`` ``(n,)``, boolean: higher scores mean the same identity.

    The accuracy of each fold uses the threshold that is best on the *other* folds (midway between two of their scores;
    of several best ones the highest). Pairs are dealt into ``folds`` folds that hold both kinds in equal shares; the
    deal depends on ``seed`` and on the set of pairs, not on their order. A protocol with its own folds (LFW) passes
    the number of each pair's fold as ``fold`` ``(n,)``.

    >>> scores = torch.tensor([0.9, 0.8, 0.7, 0.35, 0.4, 0.3, 0.2, 0.1])
    >>> same = torch.tensor([True, True, True, True, False, False, False, False])
    >>> report = verification(scores, same, folds=4)
    >>> report.auc, report.eer, report.tar(0.25)
    (0.9375, 0.25, 1.0000 [0.5101, 1.0000])
    """
    scores, same = check_pairs(scores, same)
    if fold is None:
        if folds < 2:
            raise ValueError(f"folds must be an integer ≥ 2, got {folds!r}")
        scores, same = sort_pairs(scores, same)
        fold = deal(same, folds, seed) if len(scores) >= folds else None
    else:
        scores, same, fold = sort_pairs(scores, same, _check_fold(fold, scores))
        folds = int(fold.max()) + 1
    return VerificationReport(sorted_roc(scores, same), scores, same, fold, folds)


@dataclass(frozen=True, repr=False)
class VerificationReport(Report):
    """The result of :func:`verification`; its pairs go from the highest score down. Figures are computed when asked for."""

    roc: Roc
    scores: Float[Tensor, "n"]
    same: Bool[Tensor, "n"]
    fold: Int[Tensor, "n"] | None
    folds: int
    title = "verification"

    @property
    def auc(self) -> float:
        """Area under the ROC curve, ties counted half."""
        return self.roc.auc

    @property
    def eer(self) -> float:
        """Equal error rate."""
        return self.roc.eer

    @cached_property
    def accuracies(self) -> Float[Tensor, "folds"]:
        """The accuracy of each fold at the threshold of the others."""
        if self.fold is None:
            raise ValueError(
                f"folds must be at most the number of pairs, got {self.folds} folds of {len(self.scores)} pairs"
            )
        rows = []
        for i in range(self.folds):
            held = self.fold == i
            threshold = best_threshold(self.scores[~held], self.same[~held])
            rows.append(((self.scores[held] >= threshold) == self.same[held]).double().mean())
        return torch.stack(rows)

    @property
    def accuracy(self) -> float:
        """Mean accuracy over the folds."""
        return self.accuracies.mean().item()

    @property
    def spread(self) -> float:
        """Standard deviation of the accuracy over the folds (n − 1)."""
        return self.accuracies.std().item()

    def tar(self, far: float, confidence: float = 0.95) -> Estimate:
        """True accept rate at the lowest threshold whose false accept rate is at most ``far``.

        The interval is Wilson's over the same pairs at that threshold; it does not count the threshold's own uncertainty.
        Refused when there are fewer than 1/far different pairs.
        """
        point = self.roc.at_far(far)
        return wilson(int(self.roc.accepted_same[point]), self.roc.positives, confidence)

    def threshold(self, far: float) -> float:
        """The threshold behind :meth:`tar`."""
        return self.roc.thresholds[self.roc.at_far(far)].item()

    def numbers(self) -> dict[str, Number]:
        """Accuracy with its spread, EER, AUC and TAR at every power of ten of FAR that the negatives resolve."""
        numbers: dict[str, Number] = {"same pairs": self.roc.positives, "different pairs": self.roc.negatives}
        if self.fold is not None:
            numbers |= {"accuracy": self.accuracy, "accuracy spread": self.spread, "folds": self.folds}
        numbers |= {"EER": self.eer, "AUC": self.auc}
        for exponent in range(1, 7):
            if self.roc.negatives >= 10**exponent:
                rate = self.tar(10.0**-exponent)
                numbers |= {
                    f"TAR@FAR=1e-{exponent}": float(rate),
                    f"TAR@FAR=1e-{exponent} 95 %": f"[{rate.low:.4f}, {rate.high:.4f}]",
                }
        return numbers

    def draw(self, axes: Any) -> None:
        """The ROC curve, with a logarithmic FAR."""
        far = self.roc.far.clamp_min(0.5 / self.roc.negatives)  # 0 has no place on a logarithmic axis
        axes.semilogx(
            far.cpu().numpy(),
            self.roc.tar.cpu().numpy(),
            drawstyle="steps-post",
            label=f"AUC {self.auc:.4f}, EER {self.eer:.4f}",
        )
        axes.set(xlabel="false accept rate", ylabel="true accept rate", ylim=(0, 1.02), title="verification")
        axes.legend(loc="lower right")


def best_threshold(scores: Float[Tensor, "n"], same: Bool[Tensor, "n"]) -> float:
    """The threshold of highest accuracy on sorted pairs: midway between neighbouring scores, or beyond them all; the highest of equals."""
    if not same.any() or same.all():
        return -torch.inf if same.any() else torch.inf
    roc = sorted_roc(scores, same)
    i = int((roc.accepted_same - roc.accepted_different).argmax())  # the first of equals is the highest threshold
    if i == 0 or i == len(roc.thresholds) - 1:
        return torch.inf if i == 0 else -torch.inf
    above, below = roc.thresholds[i].item(), roc.thresholds[i + 1].item()
    middle = above / 2 + below / 2
    return middle if below < middle <= above else above  # neighbours in float64 have nothing between them


def deal(same: Bool[Tensor, "n"], folds: int, seed: int) -> Int[Tensor, "n"]:
    """A fold for every pair, both kinds in equal shares: a random deal of *sorted* pairs, so that their first order is no matter."""
    generator = torch.Generator().manual_seed(seed)
    fold = torch.empty(len(same), dtype=torch.long, device=same.device)
    dealt = 0
    for kind in (~same, same):
        count = int(kind.sum())
        fold[kind] = (torch.randperm(count, generator=generator) + dealt).to(same.device) % folds
        dealt += count
    return fold


def _check_fold(fold: Tensor, scores: Tensor) -> Tensor:
    if fold.shape != scores.shape or fold.dtype == torch.bool or fold.is_floating_point() or fold.is_complex():
        raise ValueError(
            f"fold must hold an integer for each of the {len(scores)} pairs, got {fold.dtype} {tuple(fold.shape)}"
        )
    ids, fold = fold.to(scores.device).unique(return_inverse=True)
    if len(ids) < 2:
        raise ValueError(f"fold must name at least two folds, got {ids.tolist()}")
    return fold
