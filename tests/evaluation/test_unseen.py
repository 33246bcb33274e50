from itertools import combinations

import numpy as np
import pytest
import torch

from hypersphere.data.streams import TEMPLATE, Stream
from hypersphere.evaluation import few_shot, unseen_classes
from hypersphere.evaluation._identification import split_one_per_class

from .contracts import ReportContract


def clusters(classes=30, each=6, noise=0.9):
    """Features in float64 around random directions, in random order, with labels that are not consecutive."""
    centers = torch.nn.functional.normalize(torch.randn(classes, 8, dtype=torch.float64), dim=1)
    labels = torch.randperm(classes * each) % classes
    return centers[labels] + noise * torch.randn(len(labels), 8, dtype=torch.float64) / 8**0.5, labels * 3 - 5


class TestReport(ReportContract):
    @pytest.fixture
    def report(self):
        return unseen_classes(*clusters(), episodes=20)


def brute_verification(features, labels):
    unit = (features / features.norm(dim=1, keepdim=True)).numpy()
    scores, same = zip(
        *((unit[i] @ unit[j], bool(labels[i] == labels[j])) for i, j in combinations(range(len(labels)), 2)),
        strict=True,
    )
    return np.array(scores), np.array(same)


def test_verification_is_over_all_pairs():
    features, labels = clusters()
    report = unseen_classes(features, labels, episodes=5)
    scores, same = brute_verification(features, labels)
    thresholds = np.sort(scores)[::-1]
    far = np.array([(scores[~same] >= t).mean() for t in thresholds])
    tar = np.array([(scores[same] >= t).mean() for t in thresholds])
    assert report.numbers()["TAR@FAR=1e-3"] == pytest.approx(tar[far <= 1e-3].max(), abs=1e-12)
    nearest = np.argmin(np.abs(far - (1 - tar)))
    assert abs(report.numbers()["EER"] - (far[nearest] + 1 - tar[nearest]) / 2) < 0.01
    assert report.verification.roc.positives == same.sum()
    assert report.verification.roc.negatives == (~same).sum()


def test_fewer_negatives_are_a_sample_of_them():
    features, labels = clusters()
    report = unseen_classes(features, labels, negatives=500, episodes=5)
    assert report.verification.roc.negatives == 500
    assert "TAR@FAR=1e-3" not in report.numbers()
    assert report.verification.eer == pytest.approx(
        unseen_classes(features, labels, episodes=5).verification.eer, abs=0.05
    )


def test_identification_enrolls_one_template_per_class():
    features, labels = clusters()
    unit = features / features.norm(dim=1, keepdim=True)
    gallery, probes = split_one_per_class(labels, Stream(4, TEMPLATE, 0))
    assert sorted(labels[gallery].tolist()) == sorted(set(labels.tolist()))
    assert sorted([*probes.tolist(), *gallery.tolist()]) == list(range(len(labels)))
    expected = []
    for probe in probes.tolist():
        scores = {int(labels[g]): float(unit[g] @ unit[probe]) for g in gallery.tolist()}
        expected.append(1 + sum(score > scores[int(labels[probe])] for score in scores.values()))
    assert unseen_classes(features, labels, templates=1, episodes=5, seed=4).identification.ranks.tolist() == expected


def test_templates_depend_on_the_seed():
    features, labels = clusters()
    first, again, other = (
        unseen_classes(features, labels, episodes=5, templates=2, seed=s).identification for s in (0, 0, 1)
    )
    assert torch.equal(first.ranks, again.ranks)
    assert not torch.equal(first.ranks, other.ranks)
    assert len(first.ranks) == 2 * 30 * 5
    assert not torch.equal(*first.ranks.chunk(2))


def test_few_shot_agrees_with_the_function():
    features, labels = clusters()
    report = unseen_classes(features, labels, ways=7, shots=2, queries=3, episodes=40, seed=3)
    assert torch.equal(report.few_shot.accuracies, few_shot(features, labels, 7, 2, 3, episodes=40, seed=3).accuracies)
    assert "7-way 2-shot" in report.numbers()


def test_lengths_have_no_effect():
    features, labels = clusters()
    longer = features * torch.rand(len(features), 1, dtype=torch.float64).add(0.5)
    expected, found = (unseen_classes(x, labels, episodes=10).numbers() for x in (features, longer))
    assert found == pytest.approx(expected)


def test_refuses():
    features, labels = clusters()
    with pytest.raises(ValueError, match="label_ids must be integers, one for each of 180"):
        unseen_classes(features, labels[:-1])
    with pytest.raises(ValueError, match="negatives and templates must be integers ≥ 1, got 0 and 3"):
        unseen_classes(features, labels, negatives=0)
    with pytest.raises(ValueError, match="finite"):
        unseen_classes(features.index_fill(0, torch.tensor([3]), torch.nan), labels)
