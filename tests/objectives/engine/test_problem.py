import torch

from hypersphere.objectives.engine.problem import ALL_CLASSES, ClassSubset


def test_places_in_a_run_of_classes_and_among_some():
    labels = torch.tensor([0, 5, 7, 9])
    assert ALL_CLASSES.locate(labels)[1] is None
    places, here = ClassSubset(10, 3, first=5, processes=object()).locate(labels)
    assert here.tolist() == [False, True, True, False]
    assert places[here].tolist() == [0, 2]
    places, here = ClassSubset(10, 3, indices=torch.tensor([0, 2, 9])).locate(labels)
    assert here.tolist() == [True, False, False, True]
    assert places[here].tolist() == [0, 2]
    assert not ClassSubset(10, 0, indices=torch.tensor([], dtype=torch.int64)).locate(labels)[1].any()


def test_classes_by_their_places():
    assert ClassSubset(10, 4, first=5).select(slice(1, 3)) == slice(6, 8)
    assert ClassSubset(10, 3, indices=torch.tensor([0, 2, 9])).select(slice(1, 3)).tolist() == [2, 9]


def test_on_one_process_nothing_travels():
    x = torch.ones(2)
    assert ALL_CLASSES.sum_shares(x) is x
    assert ALL_CLASSES.as_share(x) is x
