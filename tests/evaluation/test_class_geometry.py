import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hypersphere.evaluation import angular_fisher_score, class_angles
from hypersphere.evaluation import class_geometry as module


def between(a, b):
    return math.acos(np.clip(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)), -1, 1))


def data(seed, n=40, classes=4, spread=0.4):
    generator = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), generator.integers(0, classes, n - classes)])
    return generator.normal(size=(classes, 3))[labels] * 2 + spread * generator.normal(size=(n, 3)), labels


@settings(max_examples=15)
@given(seed=st.integers(0, 1000))
def test_fisher_score_agrees_with_equation_a_1(seed):
    x, y = data(seed)
    mean = x.mean(0)
    within = between_ = 0.0
    for c in np.unique(y):
        center = x[y == c].mean(0)
        within += sum(1 - math.cos(between(v, center)) for v in x[y == c])
        between_ += (y == c).sum() * (1 - math.cos(between(center, mean)))
    score = angular_fisher_score(torch.from_numpy(x), torch.from_numpy(y))
    assert score.item() == pytest.approx(within / between_, rel=1e-9)


def test_fisher_score_is_lower_for_tighter_classes_and_ignores_gaps_in_the_labels():
    loose, tight = data(0, spread=0.8), data(0, spread=0.1)
    scores = [angular_fisher_score(torch.from_numpy(x), torch.from_numpy(y)) for x, y in (loose, tight)]
    assert scores[1] < scores[0]
    x, y = loose
    assert torch.allclose(angular_fisher_score(torch.from_numpy(x), torch.from_numpy(y * 10 + 3)), scores[0])


@pytest.mark.parametrize("rows", [512, 7])
def test_class_angles_agree_with_all_pairs(rows, monkeypatch):
    x, y = data(1)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    centers = [unit[y == c].mean(0) for c in range(4)]
    pairs = [between(a, b) for a, b in itertools.combinations(centers, 2)]
    same = [between(x[i], x[j]) for i, j in itertools.combinations(range(40), 2) if y[i] == y[j]]
    other = [between(x[i], x[j]) for i, j in itertools.combinations(range(40), 2) if y[i] != y[j]]
    monkeypatch.setattr(module._find_extreme_angles, "__defaults__", (rows,))
    found = class_angles(torch.from_numpy(x), torch.from_numpy(y))
    assert found.intra == pytest.approx(np.mean([between(v, centers[c]) for v, c in zip(x, y, strict=True)]), rel=1e-9)
    assert found.inter == pytest.approx(np.mean(pairs), rel=1e-9)
    assert found.nearest == pytest.approx(min(pairs), rel=1e-9)
    assert found.margin == pytest.approx(min(other) - max(same), rel=1e-6)


def test_lengths_of_features_have_no_effect():
    x, y = (torch.from_numpy(v) for v in data(2))
    scaled = class_angles(x * torch.rand(40, 1, dtype=x.dtype), y)
    assert scaled == pytest.approx(class_angles(x, y), rel=1e-9)


def test_half_precision_is_measured_in_float32():
    x, y = (torch.from_numpy(v) for v in data(3))
    assert angular_fisher_score(x.half(), y).dtype == torch.float32


@pytest.mark.untyped
@pytest.mark.parametrize("measure", [angular_fisher_score, class_angles])
def test_refuses(measure):
    with pytest.raises(ValueError, match="at least two classes"):
        measure(torch.randn(3, 2), torch.zeros(3, dtype=torch.long))
    with pytest.raises(ValueError, match="need n labels"):
        measure(torch.randn(3, 2), torch.zeros(2, dtype=torch.long))


def test_the_margin_can_be_skipped():
    x, y = map(torch.from_numpy, data(2))
    whole, quick = class_angles(x, y), class_angles(x, y, margin=False)
    assert quick[:3] == whole[:3]
    assert math.isnan(quick.margin)
