"""Few-shot recognition: a network pretrained on some classes, episodes of others (7.5.3 and F.3 of Liu, 2020)."""

from typing import Any

from torch import nn
from typing_extensions import Unpack

from ...config import Call
from ...evaluation import few_shot, sample_episodes
from .classification import Classification, TaskOptions
from .task import measure_features

METHODS = {"accuracy": "centroid", "baseline": "baseline", "baseline++": "baseline++"}


class FewShotRecognition(Classification):
    """Classification of the training classes, measured by N-way K-shot episodes of other classes.

    ``accuracy`` is that of the nearest centroid; ``baseline`` and ``baseline++`` train a linear and a cosine classifier on
    each episode. All values are in percent; ``accuracy_interval`` is half of the 95 % interval of ``accuracy``.

    Args:
        ways, shots, queries: classes per episode, support samples per class, and query samples per class.
        episodes: number of episodes.
        epochs: epochs of the classifiers that are trained on the support samples of an episode (F.3).
        train_classes, validation_classes, test_classes: numbers of classes, in their order, for a dataset without splits of
            its own (Mini-ImageNet: 64, 16, 20).

    >>> from hypersphere.training import FewShotRecognition, call
    >>> seen, unseen = (hs.data.InMemory(torch.randn(30, 4), torch.arange(30) % 3, names) for names in ("abc", "xyz"))
    >>> few = {"ways": 3, "shots": 1, "queries": 2, "episodes": 4, "epochs": 1}
    >>> task = FewShotRecognition(torch.nn.Linear(4, 8), call(hs.objectives.Softmax), seen, unseen, **few)
    >>> list(task.evaluate())[:4]
    ['accuracy', 'baseline', 'baseline++', 'accuracy_interval']
    """

    measures_unseen_classes = True

    def __init__(
        self,
        model: nn.Module | Call,
        head: nn.Module | Call,
        train: Any,
        measured: Any = None,
        *,
        ways: int = 5,
        shots: int = 5,
        queries: int = 15,
        episodes: int = 600,
        epochs: int = 100,
        train_classes: int = 64,
        validation_classes: int = 16,
        test_classes: int = 20,
        **options: Unpack[TaskOptions],
    ):
        super().__init__(model, head, train, measured, **options)
        if min(ways, shots, queries, episodes, epochs) < 1:
            numbers = (ways, shots, queries, episodes, epochs)
            raise ValueError(f"ways, shots, queries, episodes and epochs must be integers ≥ 1, got {numbers}")
        self.ways, self.shots, self.queries, self.episodes, self.epochs = ways, shots, queries, episodes, epochs
        self.division = (train_classes, validation_classes, test_classes)

    def evaluate(self) -> dict[str, float]:
        """Return the mean accuracy of each method over the same episodes, and the geometry of the unseen classes."""
        features, labels = self.embed(self.measured_samples), self.measured_samples.labels
        episodes = sample_episodes(labels, self.ways, self.shots, self.queries, self.episodes)
        reports = {
            name: few_shot(features, labels, method=method, episodes=episodes, epochs=self.epochs)
            for name, method in METHODS.items()
        }
        values = {name: 100 * float(report.accuracy) for name, report in reports.items()}
        estimate = reports["accuracy"].accuracy
        half = 100 * (estimate.high - float(estimate))
        return {**values, "accuracy_interval": half, **measure_features(features, labels)}
