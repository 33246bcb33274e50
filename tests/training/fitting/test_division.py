import numpy as np
import pytest
import torch

from hypersphere.data import ArraySource, DataError
from hypersphere.training.fitting.division import divide, separate_selection


def source(labels, split=None):
    return ArraySource(np.zeros((len(labels), 4, 4), dtype=np.uint8), np.array(labels), split=split)


def test_identities_are_on_one_side_and_the_same_every_time():
    made = source(np.arange(20).repeat(3))
    train, measured, reason = divide(made, 0.25)
    assert len(train) == 45
    assert not set(made.labels[train].tolist()) & set(made.labels[measured].tolist())
    assert torch.equal(divide(made, 0.25).measured, measured)
    assert reason.startswith("5 of 20 identities are never trained on")


def test_two_are_held_out_at_least_and_two_trained_on():
    assert (
        len(source(np.arange(4).repeat(2)).labels[divide(source(np.arange(4).repeat(2)), 0.01).measured].unique()) == 2
    )
    assert len(divide(source(np.arange(4).repeat(2)), 0.99).train) == 4
    with pytest.raises(DataError, match="holds 3 identities with at least 2 pictures; 4 are needed"):
        divide(source(np.arange(3).repeat(2)), 0.5)


def test_identities_with_few_pictures_are_left_out():
    made = source([0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 6])
    train, measured, _ = divide(made, 0.5)
    assert len(train) + len(measured) == 8


def test_own_splits_count_where_identities_differ():
    labels = np.arange(8).repeat(2)
    split = ["train"] * 8 + ["test"] * 8
    train, measured, reason = divide(source(labels, split), 0.2)
    assert (train.tolist(), measured.tolist()) == (list(range(8)), list(range(8, 16)))
    assert reason == "the source's own splits: train is trained on, test measured"
    split[8] = "train"
    _, measured, reason = divide(source(labels, split), 0.2)
    assert measured.tolist() == list(range(10, 16))
    assert reason.endswith("without 1 identities that are in train too")


def test_splits_of_the_same_identities_are_not_used():
    made = source(np.arange(8).repeat(2), ["train", "test"] * 8)
    train, measured, _ = divide(made, 0.25)
    assert (len(train), len(measured)) == (12, 4)


def test_nothing_held_out():
    train, measured, reason = divide(source(np.arange(3).repeat(2)), 0.0)
    assert torch.equal(train, measured)
    assert "the report measures the training identities" in reason


def test_selection_is_disjoint_from_training_and_report():
    made = source(np.arange(40).repeat(4))
    whole = divide(made, 0.2)
    rest, selection, why = separate_selection(made, whole, 0.2)
    parts = [set(made.labels[index].tolist()) for index in (rest.train, rest.measured, selection)]
    assert [len(part) for part in parts] == [26, 8, 6]
    assert len(set.union(*parts)) == 40
    assert torch.equal(rest.measured, whole.measured)
    assert "6 identities that are neither trained on nor among the 8 of the report" in why


def test_few_identities_are_all_trained_on():
    made = source(np.arange(12).repeat(4))
    whole = divide(made, 0.2)
    rest, selection, why = separate_selection(made, whole, 0.2)
    assert rest is whole
    assert len(selection) == 0
    assert "too few to choose weights" in why
