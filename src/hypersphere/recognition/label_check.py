"""Wrong labels, identities with two labels, and near-duplicates, found with the features of an embedder."""

import csv
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..evaluation.score_calibration import LogisticCalibration
from ..files import write_atomically
from ..geometry import normalize
from ._search import search
from .grouping import build_neighbor_graph
from .grouping_calibration import calibrate_features

NEAREST = 2  # most similar samples of a label: one of them may be wrong, and a mean over all penalizes variety
NEIGHBORS = 32
DUPLICATE_COSINE = 0.97
WRONG_SHARE = 0.05  # prior share of wrong labels
SAME_PERSON_PRIOR = 1e-4  # prior probability that two labels are one identity


@dataclass(frozen=True)
class Suspicion:
    """A sample whose label may be wrong.

    Args:
        sample: Its position.
        probability: The probability that the label is wrong.
        label: The given label.
        better: The most similar label, None if the sample is unlike all labels.

    >>> Suspicion(3, 0.98, "bob", "ann").better
    'ann'
    """

    sample: int
    probability: float
    label: str
    better: str | None


@dataclass(frozen=True)
class LabelReport:
    """The findings of :func:`check_labels`; ``print(report)`` prints a summary.

    Args:
        names: The name of each sample.
        labels: The label of each sample.
        suspicions: Samples whose label may be wrong, the most probable first.
        same_identity: Pairs of labels that may be one identity, with the probability, the most probable first.
        duplicates: Pairs of samples that are nearly the same picture, with their cosine.

    >>> LabelReport(("1.png",), ("ann",), (), (), ()).clean_samples
    [0]
    """

    names: tuple[str, ...]
    labels: tuple[str, ...]
    suspicions: tuple[Suspicion, ...]
    same_identity: tuple[tuple[str, str, float], ...]
    duplicates: tuple[tuple[int, int, float], ...]

    @property
    def clean_samples(self) -> list[int]:
        """The positions of the samples whose label is not suspicious."""
        wrong = {one.sample for one in self.suspicions}
        return [i for i in range(len(self.names)) if i not in wrong]

    def to_json(self) -> dict[str, object]:
        """Return every finding as plain values."""
        return {
            "suspicions": [
                {"name": self.names[s.sample], "label": s.label, "better": s.better, "probability": s.probability}
                for s in self.suspicions
            ],
            "same_identity": [{"labels": [a, b], "probability": p} for a, b, p in self.same_identity],
            "duplicates": [
                {"names": [self.names[a], self.names[b]], "labels": [self.labels[a], self.labels[b]], "cosine": c}
                for a, b, c in self.duplicates
            ],
        }

    def __str__(self) -> str:
        across = sum(self.labels[a] != self.labels[b] for a, b, _ in self.duplicates)
        lines = [f"  {len(self.suspicions)} of {len(self.names)} labels may be wrong"]
        for one in self.suspicions[:8]:
            like = f", looks like {one.better}" if one.better else ""
            lines.append(f"    {self.names[one.sample]}: {one.label} ({one.probability:.0%} wrong{like})")
        lines.append(f"  {len(self.same_identity)} pairs of labels may be one identity")
        lines += [f"    {a} = {b} ({p:.0%})" for a, b, p in self.same_identity[:8]]
        lines.append(f"  {len(self.duplicates)} pairs of samples are nearly the same, {across} under two labels")
        return "\n".join(lines)

    __repr__ = __str__


def check_labels(
    features: Float[Tensor, "n d"],
    labels: Sequence[str],
    names: Sequence[str] | None = None,
    calibration: LogisticCalibration | None = None,
) -> LabelReport:
    """Find labels that contradict the features.

    The evidence ℓ_own for the label of a sample is the mean cosine with the two most similar other samples of the label,
    converted to calibrated log-odds. The most similar other label gives ℓ_other in the same way. A label is suspicious if
    ℓ_own < 0, or if ℓ_other exceeds ℓ_own by so much that the other label is more probable, given that one label in twenty
    is wrong. If a label has two samples that contradict each other, only the one that is more similar to another label is
    suspicious, or both if neither or both are. The only sample of a label is suspicious only if it is similar to another
    label with at least two samples.

    Args:
        features: One row per sample.
        labels: The label of each sample.
        names: The name of each sample; by default its number.
        calibration: The log-odds of two features with a given cosine. By default they are measured with the labels
            themselves, which works if most of them are right.

    Returns:
        The suspicious samples, labels that may be one identity, and near-duplicates.

    Raises:
        ValueError: If the numbers of features and labels differ.

    >>> features = torch.tensor([[1.0, 0.0]] * 4 + [[0.0, 1.0]] * 4)
    >>> report = check_labels(features, list("aaab" "bbbb"), calibration=LogisticCalibration(30.0, -15.0))
    >>> [(one.sample, one.better) for one in report.suspicions]
    [(3, 'a')]
    """
    if len(labels) != len(features):
        raise ValueError(f"labels must have one entry for each of {len(features)} features, got {len(labels)}")
    order = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    texts, ids = list(order), torch.tensor([order[label] for label in labels])
    unit = normalize(features.detach().cpu().double())
    if calibration is None:
        # Wrong labels lower the cosines of pairs of one label, so samples that a first pass finds suspicious are left out.
        first_pass = _judge(unit, ids, len(texts), calibrate_features(unit, ids)).suspicious
        calibration = calibrate_features(unit[~first_pass], ids[~first_pass])
    own, other, other_label, suspicious = _judge(unit, ids, len(texts), calibration)
    chance = torch.sigmoid(torch.maximum(other.clamp_min(0), torch.zeros(()).double()) - own)
    found = sorted(suspicious.nonzero().flatten().tolist(), key=lambda i: (-float(chance[i]), i))
    suspicions = tuple(
        Suspicion(
            i, float(chance[i]), labels[i], texts[int(other_label[i])] if other[i] > max(0.0, float(own[i])) else None
        )
        for i in found
    )
    same = _find_same_identities(unit[~suspicious], ids[~suspicious], texts, calibration)
    first, second, cosines = build_neighbor_graph(unit.float(), min(8, max(1, len(unit) - 1)))
    near = cosines >= DUPLICATE_COSINE
    twins = sorted(zip(first[near].tolist(), second[near].tolist(), cosines[near].tolist(), strict=True))
    sample_names = tuple(names) if names is not None else tuple(str(i) for i in range(len(labels)))
    return LabelReport(sample_names, tuple(labels), suspicions, same, tuple(twins))


def write_cleaned_table(report: LabelReport, path: str | os.PathLike[str]) -> int:
    """Write the samples whose label is not suspicious as a CSV table with the columns path and label; return the rows.

    >>> import tempfile
    >>> report = LabelReport(("1.png", "2.png"), ("ann", "ann"), (Suspicion(1, 0.9, "ann", None),), (), ())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_cleaned_table(report, f"{folder}/cleaned.csv")
    1
    """

    def write(temporary: str) -> None:
        with open(temporary, "w", newline="", encoding="utf-8", errors="surrogateescape") as file:
            table = csv.writer(file)
            table.writerow(("path", "label"))
            table.writerows((report.names[i], report.labels[i]) for i in report.clean_samples)

    write_atomically(path, write)
    return len(report.clean_samples)


class _Judgment(NamedTuple):
    """Log-odds of the own and of the most similar other label, that label's number, and which labels are suspicious."""

    own: Float[Tensor, "n"]
    other: Float[Tensor, "n"]
    other_label: Int[Tensor, "n"]
    suspicious: Bool[Tensor, "n"]


def _judge(unit: Tensor, ids: Tensor, labels: int, calibration: LogisticCalibration) -> _Judgment:
    counts = torch.bincount(ids, minlength=labels)
    own = _measure_own_evidence(unit, ids, calibration)
    other, other_label = _measure_other_evidence(unit, ids, counts, calibration)
    claimed = (
        (other > own) & (other > math.log(labels)) & (counts[other_label] > 1)
    )  # prior probability of each label: 1/labels
    # Bayes: the given label is right with 1 − WRONG_SHARE, each of the others with WRONG_SHARE / (labels − 1).
    margin = math.log((1 - WRONG_SHARE) / WRONG_SHARE * max(1, labels - 1))
    contradicted = (own < 0) | ((other - own > margin) & (counts[other_label] > 1))
    suspicious = torch.where(counts[ids] > 1, contradicted, claimed)
    _settle_pairs(suspicious, claimed, ids, counts)
    return _Judgment(own, other, other_label, suspicious)


def _measure_own_evidence(unit: Tensor, ids: Tensor, calibration: LogisticCalibration) -> Float[Tensor, "n"]:
    """Return ℓ of the mean cosine with the nearest samples of the same label; 0 for a sample that is alone."""
    result = torch.zeros(len(unit), dtype=torch.double)
    order = torch.argsort(ids, stable=True)
    for part in order.split(torch.bincount(ids).tolist()):
        if len(part) > 1:
            cosines = (unit[part] @ unit[part].T).fill_diagonal_(-torch.inf)
            best = cosines.topk(min(NEAREST, len(part) - 1), 1).values
            result[part] = calibration.log_odds(best.mean(1))
    return result


def _measure_other_evidence(
    unit: Tensor, ids: Tensor, counts: Tensor, calibration: LogisticCalibration
) -> tuple[Float[Tensor, "n"], Int[Tensor, "n"]]:
    """Return ℓ of the most similar other label and its number, from the nearest neighbors of each sample."""
    scores, found = search(unit.float(), unit.float(), k=min(NEIGHBORS + 1, len(unit)))
    numbers, sizes = ids.tolist(), counts.tolist()
    which, means = list(numbers), []
    for i, (cosines, neighbors) in enumerate(zip(scores.tolist(), found.tolist(), strict=True)):
        best: dict[int, list[float]] = {}
        for cosine, j in zip(cosines, neighbors, strict=True):
            label = numbers[j]
            if label != numbers[i] and len(best.setdefault(label, [])) < min(NEAREST, sizes[label]):
                best[label].append(cosine)
        averages = {label: sum(cosines) / len(cosines) for label, cosines in best.items()}
        which[i] = max(averages, key=averages.__getitem__, default=numbers[i])
        means.append(averages.get(which[i], -1.0))
    evidence = calibration.log_odds(torch.tensor(means, dtype=torch.double))
    return evidence, torch.tensor(which)


def _settle_pairs(suspicious: Tensor, claimed: Tensor, ids: Tensor, counts: Tensor) -> None:
    """If both samples of a label are suspicious and one is claimed by another label, keep only that one as suspicious."""
    for label in (counts == 2).nonzero().flatten().tolist():
        both = (ids == label).nonzero().flatten()
        if suspicious[both].all() and claimed[both].sum() == 1:
            suspicious[both] = claimed[both]


def _find_same_identities(
    unit: Tensor, ids: Tensor, texts: list[str], calibration: LogisticCalibration
) -> tuple[tuple[str, str, float], ...]:
    """Return pairs of labels whose samples are on average more likely one identity than two."""
    if not len(ids):
        return ()
    sums = torch.zeros(len(texts), unit.shape[1], dtype=torch.double).index_add_(0, ids, unit)
    sizes = torch.bincount(ids, minlength=len(texts)).double()
    means = sums / sizes.clamp_min(1)[:, None]
    found = []
    for rows in torch.arange(len(texts)).split(1024):
        chance = calibration.probability((means[rows] @ means.T).flatten(), SAME_PERSON_PRIOR).view(len(rows), -1)
        for a, b in (chance > 0.5).nonzero().tolist():
            if rows[a] < b and sizes[rows[a]] and sizes[b]:
                found.append((texts[int(rows[a])], texts[b], float(chance[a, b])))
    return tuple(sorted(found, key=lambda one: -one[2]))
