from itertools import combinations

import numpy as np
import pytest
import sklearn.metrics
import torch
from hypothesis import given
from hypothesis import strategies as st

from hypersphere.evaluation import all_pairs, roc_curve
from hypersphere.evaluation._all_pairs import BINS


def brute(features, labels):
    """Compare all pairs of images with loops, in float64."""
    x = features.double().numpy()
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    index = list(combinations(range(len(x)), 2))
    scores = torch.tensor([float(unit[i] @ unit[j]) for i, j in index], dtype=torch.float64).round(decimals=12)
    return index, scores, torch.tensor([bool(labels[i] == labels[j]) for i, j in index])


def clusters(n=40, classes=7, dim=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (n,), generator=generator) * 5 - 7
    centers = torch.randn(classes, dim, generator=generator)
    return centers[(labels + 7) // 5] + 0.7 * torch.randn(n, dim, generator=generator), labels


@given(st.integers(0, 1000), st.integers(1, 50))
def test_the_curve_is_that_of_every_pair(seed, chunk):
    features, labels = clusters(seed=seed)
    counted, (_index, scores, same) = all_pairs(features, labels, chunk=chunk), brute(features, labels)
    kept = roc_curve(scores, same)
    assert (counted.roc.positives, counted.roc.negatives) == (kept.positives, kept.negatives)
    assert counted.roc.auc == pytest.approx(sklearn.metrics.roc_auc_score(same.numpy(), scores.numpy()), abs=1e-12)
    assert counted.roc.eer == pytest.approx(float(kept.eer), abs=1e-12)
    for far in (0.5, 0.1, 0.01):
        if kept.resolve_fars([far]):
            assert counted.roc.accepted_same[counted.roc.at_far(far)] == kept.accepted_same[kept.at_far(far)]


@pytest.mark.parametrize("chunk", [1, 13, 100])
def test_the_worst_errors_are_those_of_sorting(chunk):
    features, labels = clusters()
    counted, (index, scores, same) = all_pairs(features, labels, worst=6, chunk=chunk), brute(features, labels)
    rows = [(s, pair) for s, pair, y in zip(scores.tolist(), index, same.tolist(), strict=True) if not y]
    expected = sorted(rows, reverse=True)[:6]
    accepts = counted.false_accepts
    assert accepts.scores.tolist() == pytest.approx([s for s, _ in expected])
    assert list(zip(accepts.first.tolist(), accepts.second.tolist(), strict=True)) == [pair for _, pair in expected]
    rejects = counted.false_rejects
    assert rejects.scores.tolist() == pytest.approx(sorted(scores[same].tolist())[:6])
    assert (labels[rejects.first] == labels[rejects.second]).all()


def test_histograms_agree_with_numpy():
    features, labels = clusters()
    counted, (_, scores, same) = all_pairs(features, labels), brute(features, labels)
    for ours, chosen in ((counted.same_histogram, same), (counted.different_histogram, ~same)):
        theirs, _ = np.histogram(scores[chosen].numpy(), BINS, (-1, 1))
        assert ours.tolist() == theirs.tolist()


def test_fewer_errors_than_requested():
    counted = all_pairs(torch.eye(3), torch.tensor([0, 0, 1]), worst=20)
    assert len(counted.false_accepts.scores) == 2
    assert len(counted.false_rejects.scores) == 1


def test_refuses():
    features = torch.randn(4, 2)
    for labels in (torch.arange(4), torch.zeros(4).long()):
        with pytest.raises(ValueError, match="labels must give same and different pairs"):
            all_pairs(features, labels)
    with pytest.raises(ValueError, match="chunk and worst must be integers ≥ 1"):
        all_pairs(features, torch.arange(4) // 2, chunk=0)
    with pytest.raises(ValueError, match="features must be finite"):
        all_pairs(features / 0, torch.arange(4) // 2)
