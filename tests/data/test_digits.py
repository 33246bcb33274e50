import torch

from hypersphere.data import Digits

from .files import digest


def test_all_digits_are_those_of_scikit_learn():
    from sklearn.datasets import load_digits

    dataset = Digits(train=None)
    assert dataset.data.shape == (1797, 1, 8, 8)
    assert torch.equal((dataset.data[:, 0].double() * (16 / 255)).round(), torch.from_numpy(load_digits().images))
    assert digest(dataset.data) == "b41ca9fd335466eee997366c2e6f6bbe0a1b4582afe091fc4eba35f4a254182f"


def test_the_parts_are_disjoint_balanced_and_make_the_whole():
    whole, train, test = Digits(train=None), Digits(), Digits(train=False)
    rows = [{tuple(x) for x in part.data.flatten(1).tolist()} for part in (train, test, whole)]
    assert rows[0] | rows[1] == rows[2]
    assert not rows[0] & rows[1]
    assert (torch.bincount(test.labels) - torch.bincount(whole.labels) / 5).abs().max() < 1
