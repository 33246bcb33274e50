import math

import numpy as np
import pytest
import torch

from hypersphere.objectives import ArcFace, ByClass, ByCount, CosFace
from tests.objectives.contracts import HeadContract

VALUES = np.linspace(0.05, 0.6, 11)


class TestByClass(HeadContract):
    scale = 30.0

    def head(self, **options):
        torch.manual_seed(1)
        return CosFace(5, 11, m=ByClass(VALUES.tolist()), **options)

    def target_of(self, theta, length, label):
        return np.cos(theta) - np.float32(VALUES[label])


class TestAngleByClass(HeadContract):
    scale = 64.0

    def head(self, **options):
        torch.manual_seed(1)
        return ArcFace(5, 11, m=ByClass(VALUES.tolist()), **options)

    def target_of(self, theta, length, label):
        u = theta + np.float64(np.float32(VALUES[label]))
        return np.cos(u) if u <= math.pi else -np.cos(u) - 2


def test_counts_by_the_formula():
    counts = [3, 10, 1000, 40]
    rarity = np.array(counts) ** -0.25
    expected = 0.05 + 0.45 * (rarity - rarity.min()) / (rarity.max() - rarity.min())
    assert ByCount(counts).values.numpy() == pytest.approx(expected, rel=1e-6)
    assert ByCount([7, 7], most=0.3).values.tolist() == pytest.approx([0.3, 0.3])


def test_one_number_per_class_is_needed():
    with pytest.raises(ValueError, match="the margin has 4 numbers, one per class, for 11 classes"):
        ArcFace(5, 11, m=ByClass([0.1] * 4))


@pytest.mark.untyped
@pytest.mark.parametrize("values", [[], [math.nan], [[0.1]]])
def test_refuses_values(values):
    with pytest.raises(ValueError, match="values must be finite numbers"):
        ByClass(values)


def test_the_margin_refuses_what_it_cannot_use():
    with pytest.raises(ValueError, match=r"margin m must be a number ≥ 0 and below 3\.14159, got 4"):
        ArcFace(5, 2, m=ByClass([0.5, 4.0]))
    with pytest.raises(ValueError, match="counts must be integers ≥ 1"):
        ByCount([3, 0])
    with pytest.raises(ValueError, match="least"):
        ByCount([3, 1], least=0.6)
