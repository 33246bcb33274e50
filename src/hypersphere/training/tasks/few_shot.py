"""Few-shot recognition: a network pretrained on some classes, episodes of others (7.5.3, F.3)."""

from ...data import InMemory, OfClasses
from ...evaluation import few_shot, sample_episodes
from ..config import Data
from ..datasets import materialize, read
from ..measures import feature_measures
from ..protocols import FewShot
from .classification import Classification

METHODS = {"accuracy": "centroid", "baseline": "baseline", "baseline++": "baseline++"}
DIVIDED = ("Omniglot",)  # training and test parts share no class


class FewShotRecognition(Classification):
    """Classification of the training classes; measured by N-way K-shot episodes of classes it has not seen.

    ``accuracy`` is that of the nearest centroid; ``baseline`` and ``baseline++`` train a linear and a cosine classifier on each episode.
    All are percent, with half of the 95 % interval of ``accuracy`` beside it.
    """

    def load(self, config: Data) -> tuple[InMemory, InMemory]:
        """Classes to train on, and others."""
        return divided(config, self.config.few_shot)

    def evaluate(self) -> dict[str, float]:
        """Mean accuracy of each method over the same episodes, and the geometry of the unseen classes."""
        settings = self.config.few_shot
        features, labels = self.embed(self.measured), self.measured.labels
        episodes = sample_episodes(labels, settings.ways, settings.shots, settings.queries, settings.episodes)
        reports = {
            name: few_shot(features, labels, method=method, episodes=episodes, epochs=settings.epochs)
            for name, method in METHODS.items()
        }
        values = {name: 100 * float(report.accuracy) for name, report in reports.items()}
        estimate = reports["accuracy"].accuracy
        return {
            **values,
            "accuracy_interval": 100 * (estimate.high - float(estimate)),
            **feature_measures(features, labels),
        }


def divided(config: Data, settings: FewShot) -> tuple[InMemory, InMemory]:
    """``(training, measured)`` with different classes: the dataset's own division, or the first, next and last ones of its classes.

    With ``data.validation`` above 0 validation classes are measured; those of a divided dataset are the last of its training classes.
    """
    held = config.validation > 0
    whole = read(config, train=True)
    if config.name in DIVIDED:
        first = len(whole.classes) - settings.validation_classes
        counts = (first, settings.validation_classes, 0)
    else:
        counts = (settings.train_classes, settings.validation_classes, settings.test_classes)
    if counts[0] < 2 or min(counts) < 0 or sum(counts) > len(whole.classes):
        wanted = "few_shot.train_classes, validation_classes and test_classes"
        raise ValueError(
            f"{wanted} must leave 2 classes to train and sum to at most {len(whole.classes)}, got {', '.join(map(str, counts))}"
        )
    last = sum(counts[:2])
    train = materialize(OfClasses(whole, range(counts[0])))
    if config.name in DIVIDED and not held:
        return train, read(config, train=False)
    return train, materialize(OfClasses(whole, range(counts[0], last) if held else range(last, sum(counts))))
