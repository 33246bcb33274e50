import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hypersphere.data import Stream, identity_split

MASK = (1 << 64) - 1


def philox(key: tuple[int, int], counter: int) -> list[int]:
    """Return the four numbers of one counter, by the definition of Philox4x64-10 in Python integers."""
    x = [(counter >> (64 * i)) & MASK for i in range(4)]
    k = list(key)
    for _ in range(10):
        high = [0xD2E7470EE14C6C93 * x[0], 0xCA5A826395121157 * x[2]]
        x = [(high[1] >> 64) ^ x[1] ^ k[0], high[1] & MASK, (high[0] >> 64) ^ x[3] ^ k[1], high[0] & MASK]
        k = [(k[0] + 0x9E3779B97F4A7C15) & MASK, (k[1] + 0xBB67AE8584CAA73B) & MASK]
    return x


def test_is_philox():
    key = np.random.SeedSequence(5, spawn_key=(1, 2)).generate_state(2, np.uint64)
    expected = [x for counter in range(1, 4) for x in philox((int(key[0]), int(key[1])), counter)]
    assert Stream(5, 1, 2).raw(12).tolist() == expected


def test_recorded_numbers_never_change():
    assert Stream(0, 0, 0).raw(3).tolist() == [14946354705293191919, 10074248136150883599, 8885816920511359030]
    assert Stream(1, 2, 3).permutation(8).tolist() == [2, 4, 0, 3, 7, 1, 5, 6]
    assert Stream(4).distinct(4, 10**12).tolist() == [404808666318, 730371152485, 918748621124, 454572477066]


@given(st.integers(0, 2**63), st.lists(st.integers(0, 2**31), max_size=3), st.integers(0, 50), st.integers(0, 20))
def test_any_position_can_be_read_directly(seed, path, start, count):
    whole = Stream(seed, *path).uniforms(start + count)
    assert torch.equal(Stream(seed, *path, start=start).uniforms(count), whole[start:])


@given(st.integers(0, 1000), st.integers(0, 60))
def test_permutations_permute(seed, n):
    assert Stream(seed).permutation(n).sort().values.tolist() == list(range(n))


def test_permutations_are_uniform():
    counts = torch.zeros(24)
    for seed in range(2400):
        order = Stream(9, seed).permutation(4).tolist()
        counts[sum(f * sum(x < order[i] for x in order[i + 1 :]) for i, f in enumerate((6, 2, 1)))] += 1
    assert ((counts - 100) ** 2 / 100).sum() < 49.7  # the 99.9 % quantile of χ² with 23 degrees of freedom


def test_uniforms_lie_in_the_half_open_interval_and_integers_below_the_bound():
    u = Stream(3).uniforms(100_000)
    assert u.dtype == torch.float64
    assert 0 <= u.min() < 1e-4
    assert 1 - 1e-4 < u.max() < 1
    assert abs(float(u.mean()) - 0.5) < 0.005
    assert torch.bincount(Stream(3).integers(7000, 7)).tolist() == pytest.approx([1000] * 7, rel=0.1)


@given(st.integers(0, 100), st.integers(0, 300), st.integers(0, 20_000))
def test_distinct_numbers_are_distinct(seed, count, extra):
    drawn = Stream(seed).distinct(count, count + extra)
    assert len(drawn.unique()) == count
    assert count == 0 or 0 <= drawn.min() <= drawn.max() < count + extra


def test_streams_of_different_addresses_differ():
    streams = [Stream(0), Stream(1), Stream(0, 0), Stream(0, 1), Stream(0, 0, 1), Stream(0, 1, 0)]
    assert len({stream.raw(1)[0] for stream in streams}) == len(streams)


@pytest.mark.parametrize("arguments", [(-1,), (0, -1)])
def test_refuses_negative_addresses(arguments):
    with pytest.raises(ValueError, match="seed, path and start must be integers ≥ 0"):
        Stream(*arguments)


def test_refuses_impossible_draws():
    with pytest.raises(ValueError, match="count must be at most high = 3, got 4"):
        Stream(0).distinct(4, 3)
    with pytest.raises(ValueError, match="high must lie in 1 … 2⁵³, got 0"):
        Stream(0).integers(1, 0)


@given(
    st.lists(st.integers(-5, 30), max_size=80), st.lists(st.floats(0, 1), min_size=1, max_size=5), st.integers(0, 100)
)
def test_no_identity_is_in_two_parts(labels, weights, seed):
    total = max(sum(weights), 1.0)
    fractions = [weight / total for weight in weights]
    labels = torch.tensor(labels, dtype=torch.long)
    parts = identity_split(labels, fractions, seed)
    owners = [set(labels[part].tolist()) for part in parts]
    assert len(parts) == len(fractions)
    assert sum(map(len, owners)) == len(set().union(*owners))
    for part, mine in zip(parts, owners, strict=True):  # all samples of an identity are in one part
        assert sorted(part.tolist()) == [i for i, label in enumerate(labels.tolist()) if label in mine]
    identities = len(labels.unique())
    assert all(abs(len(mine) - fraction * identities) <= 1 for mine, fraction in zip(owners, fractions, strict=True))


def test_parts_that_sum_to_one_contain_all_samples():
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
