import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hypersphere.data import identity_split


@given(
    st.lists(st.integers(-5, 30), max_size=80), st.lists(st.floats(0, 1), min_size=1, max_size=5), st.integers(0, 100)
)
def test_no_identity_is_on_two_sides(labels, weights, seed):
    total = max(sum(weights), 1.0)
    fractions = [weight / total for weight in weights]
    labels = torch.tensor(labels, dtype=torch.long)
    parts = identity_split(labels, fractions, seed)
    owners = [set(labels[part].tolist()) for part in parts]
    assert len(parts) == len(fractions)
    assert sum(map(len, owners)) == len(set().union(*owners))
    for part, mine in zip(parts, owners, strict=True):  # an identity comes with all its samples
        assert sorted(part.tolist()) == [i for i, label in enumerate(labels.tolist()) if label in mine]
    identities = len(labels.unique())
    assert all(abs(len(mine) - fraction * identities) <= 1 for mine, fraction in zip(owners, fractions, strict=True))


def test_parts_that_sum_to_one_hold_everything():
    labels = torch.arange(10).repeat_interleave(3)
    parts = identity_split(labels, [0.1] * 10)
    assert torch.cat(parts).sort().values.tolist() == list(range(30))
    assert [len(part) for part in parts] == [3] * 10


def test_recorded_split_never_changes():
    train, test = identity_split(torch.arange(10), [0.7, 0.3], seed=1)
    assert (train.tolist(), test.tolist()) == ([0, 2, 4, 6, 7, 8, 9], [1, 3, 5])


@pytest.mark.parametrize("fractions", [[], [-0.1, 0.5], [0.6, 0.6]])
def test_refuses(fractions):
    with pytest.raises(ValueError, match="fractions must be ≥ 0 and sum to at most 1"):
        identity_split(torch.arange(3), fractions)
