import pytest
import torch

from hypersphere import models
from hypersphere.config import call
from hypersphere.data import CropFlip, InMemory
from hypersphere.data.verification_pairs import Pairs
from hypersphere.evaluation import append_mirrored, pair_scores, verification
from hypersphere.objectives import ASoftmax
from hypersphere.training import Config, Faces, build_task, replace
from tests.training.contracts import TaskContract

PEOPLE = 60  # six per fold, with 4 images each, except the last with one


class Made(InMemory):
    """Synthetic samples with LFW's lists: person p is in fold p // 6."""

    def __init__(self):
        labels = torch.cat([torch.arange(PEOPLE - 1).repeat_interleave(4), torch.tensor([PEOPLE - 1])])
        generator = torch.Generator().manual_seed(0)
        looks = torch.randint(0, 256, (PEOPLE, 3, 16, 16), generator=generator)
        noise = torch.randint(-20, 21, (len(labels), 3, 16, 16), generator=generator)
        super().__init__(
            (looks[labels] + noise).clamp(0, 255).to(torch.uint8), labels, [f"person {p}" for p in range(PEOPLE)]
        )

    def people(self):
        return self.labels // 6

    def pairs(self):
        index = torch.combinations(torch.arange(len(self)))
        index = index[self.people()[index[:, 0]] == self.people()[index[:, 1]]]
        return Pairs(
            index[:, 0], index[:, 1], self.labels[index[:, 0]] == self.labels[index[:, 1]], self.people()[index[:, 0]]
        )


CONFIG = Config(
    task=call(Faces, fold=2),
    data=call(Made),
    batch_size=16,
    augment=call(CropFlip, pad=0),
    normalize="faces",
    mirror=True,
    backbone=call(models.sphereface4, width=0.1, feature_dim=8),
    head=call(ASoftmax),
)


class TestFaces(TaskContract):
    config = CONFIG


def test_no_one_of_two_folds_is_trained_on():
    task = build_task(CONFIG)
    expected = {f"person {p}" for p in range(PEOPLE - 1) if p // 6 not in (2, 3)}
    assert set(task.train_samples.classes) == expected
    assert set(task.measured_samples.labels.tolist()) == set(range(12, 24))


def test_the_last_folds_threshold_comes_from_the_first():
    task = build_task(replace(CONFIG, {"task.fold": 9}))
    assert task.threshold_pairs.fold.unique().tolist() == [0]
    assert task.measured_pairs.fold.unique().tolist() == [9]


def test_validation_does_not_touch_the_measured_fold():
    task = build_task(replace(CONFIG, {"samples.validation": 0.5}))
    assert task.threshold_pairs.fold.unique().tolist() == task.measured_pairs.fold.unique().tolist() == [3]
    assert len(task.threshold_pairs) + len(task.measured_pairs) == len(Made().pairs().fold[Made().pairs().fold == 3])


def test_measures_by_hand():
    task, faces = build_task(CONFIG).eval(), Made()
    with torch.no_grad():
        found = task.evaluate()
        features = append_mirrored(task.model.features, (faces.data.float() - 127.5) / 128)
    pairs = faces.pairs()
    scores = pair_scores(features, torch.stack([pairs.first, pairs.second], 1))
    own, other = pairs.fold == 2, pairs.fold == 3
    best = max((((scores[other] >= t) == pairs.same[other]).sum().item(), t.item()) for t in scores[other])[1]
    below = scores[other][scores[other] < best].max().item()
    accuracy = ((scores[own] >= (best + below) / 2) == pairs.same[own]).double().mean().item()
    assert found["accuracy"] == pytest.approx(100 * accuracy, abs=1.0)
    assert found["auc"] == pytest.approx(100 * verification(scores[own], pairs.same[own], folds=2).auc, abs=1e-3)


def test_refuses_a_fold_that_is_none():
    with pytest.raises(ValueError, match=r"fold must lie in 0 … 9, got 10"):
        build_task(replace(CONFIG, {"task.fold": 10}))
