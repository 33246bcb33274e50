"""Recognition of classes that were never trained on: the features are all that is kept of training."""

import torch

from ...data import InMemory
from ...data.omniglot_runs import OneShotRun, one_shot_runs
from ...evaluation.unseen import unseen_classes
from ...geometry import normalize
from ..measures import feature_measures
from .classification import Classification


class Unseen(Classification):
    """Trained on some classes, measured on others: verification, identification with all of them as gallery, and 20-way 1-shot.

    The measured classes are the dataset's own (the evaluation characters of Omniglot), or the classes held out by ``data.validation``.
    """

    by_class = True

    def evaluate(self) -> dict[str, float]:
        """Percentages (``tar`` at the FAR of 10⁻³, where there are pairs enough), and the geometry of the features."""
        features, labels = self.embed(self.measured), self.measured.labels
        report = unseen_classes(features, labels, ways=min(20, len(self.measured.classes)), seed=0)
        numbers = report.numbers()
        values = {
            "eer": report.verification.eer,
            "rank1": float(report.identification.rank(1)),
            "one_shot": float(report.few_shot.accuracy),
        }
        if "TAR@FAR=1e-3" in numbers:
            values["tar"] = float(numbers["TAR@FAR=1e-3"])  # type: ignore[arg-type]
        if self.config.data.name == "Omniglot" and not self.config.data.validation:
            runs = one_shot_runs(size=self.config.data.size)
            values["published_runs"] = sum(map(self.one_shot_accuracy, runs)) / len(runs)
        return {**{key: 100 * value for key, value in values.items()}, **feature_measures(features, labels)}

    def one_shot_accuracy(self, run: OneShotRun) -> float:
        """The part of a published run's queries that go to the right one of its support images."""
        support, query = (
            normalize(self.embed(InMemory(images, torch.zeros(len(images), dtype=torch.long), ("",))))
            for images in (run.support, run.query)
        )
        return ((query @ support.T).argmax(1) == run.answers).double().mean().item()
