import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hypersphere.data import pairs
from hypersphere.data.verification_pairs import _unrank


def check(labels, drawn, positives, negatives, folds):
    assert len(drawn) == folds * (positives + negatives)
    assert (drawn.first < drawn.second).all()
    assert torch.equal(labels[drawn.first] == labels[drawn.second], drawn.same)
    assert len({*zip(drawn.first.tolist(), drawn.second.tolist(), strict=True)}) == len(drawn)
    for fold in range(folds):
        mine = drawn.fold == fold
        assert (int(drawn.same[mine].sum()), int((~drawn.same[mine]).sum())) == (positives, negatives)
    owners = [
        set(labels[torch.cat([drawn.first, drawn.second])[(drawn.fold == fold).repeat(2)]].tolist())
        for fold in range(folds)
    ]
    assert all(not a & b for a, b in itertools.combinations(owners, 2))


@settings(max_examples=60)
@given(st.lists(st.integers(0, 4), min_size=2, max_size=25), st.integers(0, 50), st.data())
def test_any_available_number_of_pairs_can_be_drawn(labels, seed, data):
    labels = torch.tensor(labels)
    every = list(itertools.combinations(labels.tolist(), 2))
    same = sum(a == b for a, b in every)
    positives, negatives = data.draw(st.integers(0, same)), data.draw(st.integers(0, len(every) - same))
    check(labels, pairs(labels, positives, negatives, seed=seed), positives, negatives, 1)


def test_folds_are_identity_disjoint():
    labels = torch.randint(0, 200, (2000,))
    check(labels, pairs(labels, 30, 30, folds=10, seed=5), 30, 30, 10)


def test_pairs_are_uniform():
    labels = torch.tensor([0, 0, 0, 1, 1, 2])
    counts = torch.zeros(6, 6)
    for seed in range(1500):
        drawn = pairs(labels, 2, 2, seed=seed)
        counts[drawn.first, drawn.second] += 1
    same = labels[:, None] == labels
    upper = torch.triu(torch.ones(6, 6, dtype=torch.bool), 1)
    for kind in (same, ~same):  # two of 4 positive pairs, two of 11 negative ones
        expected = 3000 / int((kind & upper).sum())
        assert ((counts[kind & upper] - expected).abs() < 5 * expected**0.5).all()


def test_sparse_draws_from_many_samples():
    labels = torch.arange(1000).repeat(20)
    check(labels, pairs(labels, 500, 500, seed=1), 500, 500, 1)


def test_recorded_pairs_never_change():
    drawn = pairs(torch.arange(50).repeat(4), 3, 3, folds=2, seed=11)
    assert [drawn.first.tolist(), drawn.second.tolist()] == [
        [109, 141, 29, 4, 14, 147, 44, 15, 18, 6, 148, 98],
        [159, 191, 129, 120, 77, 170, 144, 65, 118, 146, 165, 101],
    ]


@given(st.integers(0, 2**52))
def test_unrank_inverts_the_numbering(number):
    high, low = (int(x[0]) for x in _unrank(torch.tensor([number])))
    assert high * (high - 1) // 2 + low == number
    assert 0 <= low < high


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"positives": 4}, "positives must be at most 3, the pairs of one identity in a fold, got 4"),
        ({"negatives": 4}, "negatives must be at most 3, the pairs of two identities in a fold, got 4"),
        ({"folds": 0}, "folds ≥ 1"),
        ({"positives": -1}, "positives and negatives must be ≥ 0"),
    ],
)
def test_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        pairs(torch.tensor([0, 0, 0, 1]), **{"positives": 1, "negatives": 1, **arguments})
