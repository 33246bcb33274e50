import math

import pytest
import torch

from hypersphere.objectives.engine.problem import check_arguments, clean_labels

X, W = torch.zeros(4, 3), torch.zeros(6, 3)


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.zeros(4, 2), W, None, 1.0, 1), "must agree in d"),
        ((torch.zeros(3), W, None, 1.0, 1), "must agree in d"),
        ((X, W, None, 1.0, 4), "sub_centers rows"),
        ((X, W, None, 1.0, 6), "two or more classes"),
        ((X, W, None, 1.0, 0), "sub_centers"),
        ((X, W, torch.zeros(5), 1.0, 1), "bias must have one entry per class, 6"),
        ((X, W, None, "norm", 1), "scale must be a number"),
        ((X, W, None, -1.0, 1), "scale must be a positive number, got -1.0"),
        ((X, W, None, math.nan, 1), "scale must be a positive number"),
        ((X, W, None, "norms", 2), 'scale="norms" has no meaning'),
        ((X, W, None, 1.0, 1, "none"), 'gradient must be "exact" or "detached"'),
        ((X, W, None, 1.0, 1, "exact", "max"), "reduction must be"),
    ],
)
def test_check_names_the_argument(arguments, message):
    with pytest.raises(ValueError, match=message):
        check_arguments(*arguments)


def test_check_accepts_what_is_right():
    assert check_arguments(X, W, torch.zeros(3), "feature_norm", 2, "detached", "sum") is None
    assert check_arguments(X, W, torch.tensor(1.0), 1.0, 1) is None


def test_labels_are_cleaned():
    labels, ignored = clean_labels(torch.tensor([0, 255, 5], dtype=torch.uint8), 3, 6, 255)
    assert labels.tolist() == [0, 0, 5]
    assert labels.dtype == torch.int64
    assert ignored.tolist() == [False, True, False]
    assert clean_labels(torch.empty(0, dtype=torch.long), 0, 6, -100)[0].shape == (0,)


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.tensor([0, 6, 1]), r"labels must be in \[0, 5\] or ignore_index=-100, got 6"),
        (torch.tensor([0, -1, 1]), "got -1"),
        (torch.tensor([0.0, 1.0, 2.0]), "integers, one per feature, got torch.float32"),
        (torch.tensor([0, 1]), r"must be 3 integers.*shape \(2,\)"),
        (torch.tensor([[0, 1, 2]]), "must be 3 integers"),
    ],
)
def test_labels_are_refused(labels, message):
    with pytest.raises(ValueError, match=message):
        clean_labels(labels, 3, 6, -100)
