import math

import pytest
import torch

from hypersphere.objectives import ArcFace, find_outlying_samples, keep_dominant, measure_sub_centers


def circle(*degrees):
    a = torch.tensor(degrees).deg2rad()
    return torch.stack([a.cos(), a.sin()], 1)


@pytest.fixture
def head():
    head = ArcFace(2, 2, sub_centers=3)
    head.weight.data = circle(0, 20, 100, 180, 170, 260) * torch.tensor([[1.0], [3.0], [0.2], [1], [1], [1]])
    return head


FEATURES, LABELS = circle(1, 22, 24, 90, 178, 181, 262) * 7, torch.tensor([0, 0, 0, 0, 1, 1, 1])


def test_counts_dominant_and_angles(head):
    found = measure_sub_centers(head, FEATURES, LABELS)
    assert found.counts.tolist() == [[1, 2, 1], [2, 0, 1]]
    assert found.dominant.tolist() == [1, 0]
    assert found.angles.rad2deg().flatten().tolist() == pytest.approx([20, 0, 80, 0, 10, 80], abs=1e-3)
    assert found.find_outlying() == [(0, 2), (1, 2)]
    assert found.find_outlying(math.radians(85)) == []
    assert found.find_outlying(math.radians(15)) == [(0, 0), (0, 2), (1, 2)]


def test_samples_far_from_the_dominant_center(head):
    dominant = measure_sub_centers(head, FEATURES, LABELS).dominant
    assert find_outlying_samples(head, FEATURES, LABELS, dominant).tolist() == [
        False,
        False,
        False,
        False,
        False,
        False,
        True,
    ]
    near = find_outlying_samples(head, FEATURES, LABELS, dominant, math.radians(10))
    assert near.tolist() == [True, False, False, True, False, False, True]


def test_only_the_dominant_center_is_kept(head):
    logits = head.logits(FEATURES)
    keep_dominant(head, torch.tensor([1, 0]))
    assert head.weight.shape == (2, 2)
    assert head.sub_centers == 1
    assert isinstance(head.weight, torch.nn.Parameter)
    assert (head.logits(FEATURES) <= logits + 1e-4).all()
    head(FEATURES, LABELS).backward()
    assert head.weight.grad.shape == (2, 2)


@pytest.mark.parametrize("dominant", [torch.tensor([0]), torch.tensor([0, 3]), torch.tensor([-1, 0])])
def test_refuses_centers_that_are_not_there(head, dominant):
    with pytest.raises(ValueError, match="dominant must hold 2 numbers below sub_centers=3"):
        keep_dominant(head, dominant)


def test_refuses_labels_out_of_range(head):
    with pytest.raises(ValueError, match=r"labels must be in \[0, 1\]"):
        measure_sub_centers(head, FEATURES, LABELS + 1)
