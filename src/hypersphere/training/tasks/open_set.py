"""Recognition of classes that are not in the training set, by the features only."""

from typing import Any

import torch
from torch import nn
from typing_extensions import Unpack

from ...config import Call
from ...data import OneShotRun, one_shot_runs
from ...evaluation import unseen_classes
from ...geometry import normalize
from .classification import Classification, TaskOptions
from .task import measure_features


class OpenSet(Classification):
    """Classification of the training classes, measured on other classes: verification, identification, one-shot recognition.

    Args:
        ways: classes of a one-shot episode, limited to the number of measured classes.
        published_runs: also measure the 20 published one-shot runs of Omniglot, whose images are read at the size of the inputs.

    >>> from hypersphere.training import OpenSet, call
    >>> seen, unseen = (hs.data.InMemory(torch.randn(30, 4), torch.arange(30) % 3, names) for names in ("abc", "xyz"))
    >>> task = OpenSet(torch.nn.Linear(4, 8), call(hs.objectives.ArcFace), seen, unseen)
    >>> "".join(task.train_samples.classes), "".join(task.measured_samples.classes), task.embed(unseen).shape
    ('abc', 'xyz', torch.Size([30, 8]))
    """

    measures_unseen_classes = True

    def __init__(
        self,
        model: nn.Module | Call,
        head: nn.Module | Call,
        train: Any,
        measured: Any = None,
        *,
        ways: int = 20,
        published_runs: bool = False,
        **options: Unpack[TaskOptions],
    ):
        super().__init__(model, head, train, measured, **options)
        if ways < 2:
            raise ValueError(f"ways must be an integer ≥ 2, got {ways}")
        self.ways = ways
        size = self.measured_samples.batch(torch.arange(1))[0].shape[-1]
        self.runs = one_shot_runs(size=size) if published_runs else []

    def evaluate(self) -> dict[str, float]:
        """Return percentages (``tar`` at a FAR of 10⁻³ if there are enough pairs), and the geometry of the features."""
        features, labels = self.embed(self.measured_samples), self.measured_samples.labels
        report = unseen_classes(features, labels, ways=min(self.ways, len(labels.unique())), seed=0)
        verification = report.verification
        values = {
            "eer": verification.eer,
            "rank1": float(report.identification.rank(1)),
            "one_shot": float(report.few_shot.accuracy),
        }
        if verification.roc.negatives >= 1000:
            values["tar"] = float(verification.tar(1e-3))
        if self.runs:
            values["published_runs"] = sum(map(self.one_shot_accuracy, self.runs)) / len(self.runs)
        return {**{key: 100 * value for key, value in values.items()}, **measure_features(features, labels)}

    def one_shot_accuracy(self, run: OneShotRun) -> float:
        """Return the share of queries of the published runs that are assigned to the right support image."""
        support, query = (normalize(self.embed_batch(images).float().cpu()) for images in (run.support, run.query))
        return ((query @ support.T).argmax(1) == run.answers).double().mean().item()
