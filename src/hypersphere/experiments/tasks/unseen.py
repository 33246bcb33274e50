"""Recognition of classes that were never trained on: the features are all that is kept of training."""

from ...evaluation.unseen import unseen_classes
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
        return {**{key: 100 * value for key, value in values.items()}, **feature_measures(features, labels)}
