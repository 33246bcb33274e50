import torch

from hypersphere.objectives.part import WHOLE, Portion, added, classes_of, entered, places_of


def test_places_in_a_run_of_classes_and_among_some():
    labels = torch.tensor([0, 5, 7, 9])
    assert places_of(WHOLE, labels)[1] is None
    places, here = places_of(Portion(10, 3, first=5, processes=object()), labels)
    assert here.tolist() == [False, True, True, False]
    assert places[here].tolist() == [0, 2]
    places, here = places_of(Portion(10, 3, ids=torch.tensor([0, 2, 9])), labels)
    assert here.tolist() == [True, False, False, True]
    assert places[here].tolist() == [0, 2]
    assert not places_of(Portion(10, 0, ids=torch.tensor([], dtype=torch.int64)), labels)[1].any()


def test_classes_by_their_places():
    assert classes_of(Portion(10, 4, first=5), slice(1, 3)) == slice(6, 8)
    assert classes_of(Portion(10, 3, ids=torch.tensor([0, 2, 9])), slice(1, 3)).tolist() == [2, 9]


def test_on_one_process_nothing_travels():
    x = torch.ones(2)
    assert added(x, WHOLE) is x
    assert entered(x, WHOLE) is x
