"""Evaluation of features on unseen classes: verification, identification and few-shot classification."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from ..data.streams import TEMPLATE, Stream
from ..data.verification_pairs import count_pairs, pairs
from ._few_shot import FewShotReport, few_shot
from ._identification import IdentificationReport, split_one_per_class
from ._verification import VerificationReport, verification
from .features import pair_scores
from .figures import Figure, Report
from .ranking import check_ids, rank_probes


def unseen_classes(
    features: Float[Tensor, "n d"],
    labels: Shaped[Tensor, "..."],
    *,
    negatives: int = 1_000_000,
    templates: int = 3,
    ways: int = 20,
    shots: int = 1,
    queries: int = 5,
    episodes: int = 1000,
    seed: int = 0,
) -> "UnseenReport":
    """Evaluate features of unseen classes by cosine: verification, identification and few-shot classification.

    Verification uses all same pairs and random different pairs. Identification enrolls one random sample per class in the
    gallery and uses all other samples as probes. Few-shot classification predicts the class with the nearest centroid.

    Args:
        features: Features ``(n, d)``.
        labels: Class of each sample, integers.
        negatives: Number of different pairs, or all if there are fewer.
        templates: Number of repetitions of identification with other random galleries.
        ways: Classes per episode.
        shots: Support samples per class.
        queries: Query samples per class.
        episodes: Number of episodes.
        seed: Seed of all random choices.

    >>> features = torch.eye(30).repeat(6, 1)
    >>> report = unseen_classes(features, torch.arange(30).repeat(6), episodes=10)
    >>> report.numbers()["EER"], report.identification.rank(1), report.few_shot.accuracy
    (0.0, 1.0000 [0.9915, 1.0000], 1.0000 [1.0000, 1.0000])
    """
    labels = check_ids("label", labels, features)
    if min(negatives, templates) < 1:
        raise ValueError(f"negatives and templates must be integers ≥ 1, got {negatives} and {templates}")
    same, different = count_pairs(labels)
    drawn = pairs(labels.cpu(), same, min(negatives, different), seed=seed)
    scores = pair_scores(features, drawn.index.to(features.device))
    classes, ranks = len(labels.unique()), []
    for i in range(templates):
        gallery, probes = split_one_per_class(labels, Stream(seed, TEMPLATE, i))
        ranks.append(rank_probes(features[probes], labels[probes], features[gallery], labels[gallery]).rank)
    return UnseenReport(
        verification(scores, drawn.same.to(features.device), seed=seed),
        IdentificationReport(torch.cat(ranks), classes, torch.cat(ranks), classes),
        few_shot(features, labels, ways, shots, queries, episodes=episodes, seed=seed),
    )


@dataclass(frozen=True, repr=False)
class UnseenReport(Report):
    """The three reports of :func:`unseen_classes`.

    >>> report = unseen_classes(torch.eye(9).repeat(6, 1), torch.arange(9).repeat(6), ways=5, episodes=2)
    >>> list(report.numbers())
    ['classes', 'EER', 'TAR@FAR=1e-3', 'rank-1', '5-way 1-shot']
    """

    verification: VerificationReport
    identification: IdentificationReport
    few_shot: FewShotReport
    title = "unseen classes"

    def figures(self) -> list[Figure]:
        """Return EER, TAR at a FAR of 10⁻³ if the pairs resolve it, the rank-1 rate, and few-shot accuracy."""
        pairs, shots = self.verification.roc, self.few_shot
        figures = [
            Figure("classes", self.identification.identities, "classes"),
            Figure.of("EER", pairs.eer, count=pairs.positives + pairs.negatives),
        ]
        if pairs.resolve_fars([1e-3]):
            figures.append(Figure.of("TAR@FAR=1e-3", self.verification.tar(1e-3), count=pairs.positives))
        return [
            *figures,
            Figure.of("rank-1", self.identification.rank(1), count=len(self.identification.ranks)),
            Figure.of(f"{shots.ways}-way {shots.shots}-shot", shots.accuracy, count=len(shots.accuracies)),
        ]

    def plot(self, ax: Any = None) -> tuple[Any, Any]:
        """Draw the ROC curve of verification."""
        return self.verification.plot(ax)
