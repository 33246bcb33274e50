"""Face verification on LFW without outside data: train on the people of some folds, measure another fold."""

from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from ...config import Call
from ...data.verification_pairs import Pairs
from ...evaluation import append_mirrored, pair_scores, verification
from .classification import Classification, TaskOptions

FOLDS = 10


class Faces(Classification):
    """Verification of the pairs of one fold at a threshold from the next fold, trained on people of the other eight folds.

    The score of a pair is the cosine of the features of each image and its mirror image (2.3.6 of Liu, 2020).

    Args:
        measured: the images that the pairs index.
        threshold_pairs, measured_pairs: pairs to choose the threshold from, and pairs to measure.
        fold: LFW fold used for evaluation; the other folds, without the next, are trained on.

    >>> from hypersphere.training import Faces, call
    >>> people = hs.data.InMemory(torch.rand(30, 1, 4, 4), torch.arange(30) % 3, ("Ann", "Bob", "Cid"))
    >>> drawn = [hs.data.pairs(people.labels, 100, 100, seed=seed) for seed in (0, 1)]
    >>> head = call(hs.objectives.SphereFace)
    >>> task = Faces(torch.nn.Flatten(), head, people, people, threshold_pairs=drawn[0], measured_pairs=drawn[1])
    >>> list(task.evaluate())
    ['accuracy', 'eer', 'auc', 'tar']
    """

    measures_unseen_classes = True

    def __init__(
        self,
        model: nn.Module | Call,
        head: nn.Module | Call,
        train: Any,
        measured: Any,
        *,
        threshold_pairs: Pairs,
        measured_pairs: Pairs,
        fold: int = 0,
        **options: Unpack[TaskOptions],
    ):
        if not 0 <= fold < FOLDS:
            raise ValueError(f"fold must lie in 0 … {FOLDS - 1}, got {fold}")
        super().__init__(model, head, train, measured, **options)
        self.threshold_pairs, self.measured_pairs, self.fold = threshold_pairs, measured_pairs, fold

    def embed_batch(self, raw: Tensor) -> Tensor:
        """Return features of each image and of its mirror image, concatenated."""
        return append_mirrored(self.features, self._normalize(raw.to(self.device)))

    def evaluate(self) -> dict[str, float]:
        """Return the accuracy at the other fold's best threshold, EER, AUC and TAR at a FAR of 1 %, in percent."""
        features = self.embed(self.measured_samples, 256)
        chosen = (self.threshold_pairs, self.measured_pairs)
        scores, same = zip(*(_score_pairs(features, pairs) for pairs in chosen), strict=True)
        fold = torch.cat([torch.full((len(part),), i) for i, part in enumerate(scores)])
        report = verification(torch.cat(scores), torch.cat(same), fold=fold)
        measured = verification(scores[1], same[1], folds=2)
        values = {"accuracy": report.accuracies[1].item(), "eer": measured.eer, "auc": measured.auc}
        values["tar"] = float(measured.tar(1e-2))
        return {key: 100 * float(value) for key, value in values.items()}


def split_fold(faces: Any, fold: int, validation: bool) -> dict[str, Any]:
    """Return ``train``, ``measured`` and the two sets of pairs for a fold of LFW.

    With ``validation``, both sets are halves of the pairs of the next fold, and the fold itself is not used. The training set
    contains the people with at least two images who are in neither of the two folds.
    """
    from ...data import OfClasses, Subset
    from ..selection import materialize

    people, next_fold = faces.people(), (fold + 1) % FOLDS
    in_training = (people != fold) & (people != next_fold)
    enough = torch.bincount(faces.labels[in_training], minlength=len(faces.classes)) >= 2
    train = materialize(OfClasses(faces, torch.nonzero(enough).flatten().tolist()))
    sets = [_select_fold(faces.pairs(), number) for number in (next_fold, fold)]
    if validation:
        sets = _split_in_halves(sets[0])
    used = torch.cat([side for pairs in sets for side in (pairs.first, pairs.second)]).unique()
    new_index = torch.full((len(faces),), -1).scatter_(0, used, torch.arange(len(used)))
    threshold, measured = (Pairs(new_index[p.first], new_index[p.second], p.same, p.fold) for p in sets)
    return {
        "train": train,
        "measured": materialize(Subset(faces, used)),
        "threshold_pairs": threshold,
        "measured_pairs": measured,
    }


def _score_pairs(features: Tensor, pairs: Pairs) -> tuple[Tensor, Tensor]:
    return pair_scores(features, torch.stack([pairs.first, pairs.second], 1)), pairs.same


def _select_fold(pairs: Pairs, fold: int) -> Pairs:
    in_fold = pairs.fold == fold
    return Pairs(pairs.first[in_fold], pairs.second[in_fold], pairs.same[in_fold], pairs.fold[in_fold])


def _split_in_halves(pairs: Pairs) -> list[Pairs]:
    """Return the pairs with even and those with odd numbers."""
    columns = (pairs.first, pairs.second, pairs.same, pairs.fold)
    return [Pairs(*(column[start::2] for column in columns)) for start in (0, 1)]
