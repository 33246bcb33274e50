import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hypersphere.evaluation import sample_episodes


@given(st.integers(2, 5), st.integers(1, 3), st.integers(1, 3), st.integers(0, 10), st.randoms(use_true_random=False))
def test_ways_are_classes_and_samples_are_different(ways, shots, queries, seed, random):
    labels = [7 * c - 3 for c in range(8) for _ in range(6 + c % 3)]
    random.shuffle(labels)
    labels = torch.tensor(labels)
    episodes = sample_episodes(labels, ways, shots, queries, count=5, seed=seed)
    assert episodes.support.shape == (5, ways, shots)
    assert episodes.query.shape == (5, ways, queries)
    for support, query in zip(*episodes, strict=True):
        chosen = torch.cat([support, query], 1)
        assert (labels[chosen] == labels[chosen[:, :1]]).all()
        assert len(set(labels[chosen[:, 0]].tolist())) == ways
        assert chosen.unique().numel() == chosen.numel()


def test_seeds_repeat_and_differ_and_more_episodes_extend_fewer():
    labels = torch.arange(20).repeat(20)
    first, again, longer, other = (
        sample_episodes(labels, count=n, seed=s) for n, s in ((10, 1), (10, 1), (30, 1), (10, 2))
    )
    assert torch.equal(first.support, again.support)
    assert torch.equal(first.query, again.query)
    assert torch.equal(first.support, longer.support[:10])
    assert not torch.equal(first.support, other.support)
    assert len(torch.unique(longer.support.flatten(1), dim=0)) == 30


def test_classes_are_drawn_evenly():
    labels = torch.arange(10).repeat(20)
    drawn = labels[sample_episodes(labels, ways=5, shots=1, queries=1, count=2000).support.flatten()]
    counts = drawn.bincount(minlength=10)
    assert (counts - 1000).abs().max() < 5 * 22.4  # standard deviation √(2000·½·½)


def test_small_classes_take_no_part():
    labels = torch.cat([torch.arange(5).repeat(20), torch.full((3,), 5)])
    episodes = sample_episodes(labels, count=50, shots=2, queries=2)
    assert (labels[episodes.support] < 5).all()


@pytest.mark.parametrize("options", [{"ways": 1}, {"shots": 0}, {"queries": 0}, {"count": 0}])
def test_refuses_numbers(options):
    with pytest.raises(ValueError, match="ways must be ≥ 2 and shots, queries, count ≥ 1"):
        sample_episodes(torch.arange(10).repeat(20), **options)


def test_refuses():
    with pytest.raises(ValueError, match="ways must be at most 4, the classes with 16 samples, got 5"):
        sample_episodes(torch.cat([torch.arange(4).repeat(16), torch.tensor([4, 5])]))
    with pytest.raises(ValueError, match=r"labels must be integers of shape \(n,\)"):
        sample_episodes(torch.rand(100))
