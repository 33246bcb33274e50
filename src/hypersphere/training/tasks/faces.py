"""Face verification on LFW without outside data: people of some folds are trained on, those of another are measured."""

import torch
from torch import Tensor

from ...data import LFW, InMemory, OfClasses, Subset
from ...data.pairs import Pairs
from ...evaluation import mirrored, pair_scores, verification
from ..config import Data
from ..datasets import materialize, prepared, shaped
from .classification import Classification

FOLDS = 10


class Faces(Classification):
    """Fold ``data.fold`` is measured at a threshold taken from the next fold; the people of the other eight, and of none, are trained on.

    With ``data.validation`` the next fold is measured instead and the measured fold is not touched. The score of a pair is the cosine of
    the features of each image and its mirror image (2.3.4). Trained on are people with at least two images.
    """

    def load(self, config: Data) -> tuple[InMemory, InMemory]:
        """Eight folds to train on; everyone's images, with the pairs of two folds, to measure."""
        if not 0 <= config.fold < FOLDS:
            raise ValueError(f"data.fold must lie in 0 … {FOLDS - 1}, got {config.fold}")
        faces = lfw(config)
        people, next_fold = faces.people(), (config.fold + 1) % FOLDS
        images = InMemory(shaped(faces.data, config), faces.labels, faces.classes)
        kept = (people != config.fold) & (people != next_fold)
        enough = torch.bincount(faces.labels[kept], minlength=len(faces.classes)) >= 2
        train = materialize(OfClasses(images, torch.nonzero(enough).flatten().tolist()))
        self.threshold_pairs, self.measured_pairs = (_of_fold(faces.pairs(), fold) for fold in (next_fold, config.fold))
        if config.validation:
            self.threshold_pairs, self.measured_pairs = _halves(self.threshold_pairs)
        used = torch.cat(
            [side for pairs in (self.threshold_pairs, self.measured_pairs) for side in (pairs.first, pairs.second)]
        ).unique()
        self._place = torch.full((len(images),), -1).scatter_(0, used, torch.arange(len(used)))
        return train, materialize(Subset(images, used))

    def embed(self, dataset: InMemory, batch: int = 256) -> Tensor:
        """Features of each image and of its mirror image, one after the other."""
        parts = (
            prepared(dataset.data[i : i + batch].to(self.device), self.normalize) for i in range(0, len(dataset), batch)
        )
        return torch.cat([mirrored(self.model.features, part).float().cpu() for part in parts])

    def evaluate(self) -> dict[str, float]:
        """Accuracy at the other fold's best threshold, EER, AUC and TAR at the FAR of 1 %, in percent."""
        features = self.embed(self.measured)
        scores, same = zip(
            *(self._scores(features, pairs) for pairs in (self.threshold_pairs, self.measured_pairs)), strict=True
        )
        fold = torch.cat([torch.full((len(part),), i) for i, part in enumerate(scores)])
        report = verification(torch.cat(scores), torch.cat(same), fold=fold)
        alone = verification(scores[1], same[1], folds=2)
        values = {
            "accuracy": report.accuracies[1].item(),
            "eer": alone.eer,
            "auc": alone.auc,
            "tar": float(alone.tar(1e-2)),
        }
        return {key: 100 * value for key, value in values.items()}

    def _scores(self, features: Tensor, pairs: Pairs) -> tuple[Tensor, Tensor]:
        index = torch.stack([self._place[pairs.first], self._place[pairs.second]], 1)
        return pair_scores(features, index), pairs.same


def lfw(config: Data) -> LFW:
    """The faces without their border, at the config's size."""
    return LFW(crop=96, size=config.size)


def _of_fold(pairs: Pairs, fold: int) -> Pairs:
    mine = pairs.fold == fold
    return Pairs(pairs.first[mine], pairs.second[mine], pairs.same[mine], pairs.fold[mine])


def _halves(pairs: Pairs) -> tuple[Pairs, Pairs]:
    """Every second pair, and the others."""
    return tuple(
        Pairs(*(column[start::2] for column in (pairs.first, pairs.second, pairs.same, pairs.fold))) for start in (0, 1)
    )  # type: ignore[return-value, arg-type]
