import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hypersphere.data import ClassBalancedSampler, EpisodeSampler, HardClassSampler, Sequential, Shuffled


def test_shuffled_and_sequential_give_every_sample_once():
    first, second = Shuffled(20).order(3, 0), Shuffled(20).order(3, 1)
    assert (
        first.sort().values.tolist()
        == second.sort().values.tolist()
        == Sequential(20).order(3, 0).tolist()
        == list(range(20))
    )
    assert not torch.equal(first, second)
    assert len(Sequential(20)) == 20


@given(st.lists(st.integers(0, 5), min_size=1, max_size=60), st.integers(1, 5), st.integers(0, 9), st.data())
def test_every_block_is_balanced(labels, each, epoch, data):
    labels = torch.tensor(labels)
    classes = data.draw(st.integers(1, len(labels.unique())))
    sampler = ClassBalancedSampler(labels, classes, each)
    order = sampler.order(1, epoch)
    assert len(order) == len(sampler) == max(len(labels) // (classes * each), 1) * classes * each
    for block in order.reshape(-1, classes, each):
        owners = labels[block]
        assert (owners == owners[:, :1]).all()
        assert len(owners[:, 0].unique()) == classes
        for row, owner in zip(block, owners[:, 0], strict=True):
            assert len(row.unique()) == min(each, int((labels == owner).sum()))


def test_rare_classes_are_as_frequent_as_common_ones():
    labels = torch.tensor([0] * 900 + [1] * 90 + [2] * 10)
    sampler = ClassBalancedSampler(labels, classes=1, each=10)
    counts = sum(torch.bincount(labels[sampler.order(0, epoch)], minlength=3) for epoch in range(30))
    assert counts.tolist() == pytest.approx([10000] * 3, rel=0.1)  # 3.9 standard deviations of 3,000 independent draws


@pytest.mark.parametrize(("classes", "each"), [(0, 1), (4, 1), (1, 0)])
def test_balanced_refuses(classes, each):
    with pytest.raises(ValueError, match=r"classes must lie in 1 … 3 and each be ≥ 1"):
        ClassBalancedSampler(torch.tensor([0, 1, 2]), classes, each)


def test_episodes_are_tasks():
    labels = torch.randint(0, 12, (400,))
    sampler = EpisodeSampler(labels, ways=5, shots=2, queries=3, episodes=50, seed=2)
    for i in range(len(sampler)):
        episode = sampler[i]
        both = torch.cat([episode.support, episode.query], dim=1)
        assert len(both.unique()) == 25
        assert torch.equal(labels[both], episode.classes[:, None].expand(5, 5))
        assert len(episode.classes.unique()) == 5


def test_an_episode_depends_only_on_seed_and_number():
    labels = torch.arange(8).repeat(6)
    first = EpisodeSampler(labels, shots=1, queries=2, seed=4)[33]
    assert torch.equal(first.support, EpisodeSampler(labels, shots=1, queries=2, episodes=40, seed=4)[33].support)
    assert [first.support.flatten().tolist(), first.query.flatten().tolist()] == [
        [31, 17, 13, 20, 38],
        [47, 23, 33, 9, 21, 29, 36, 12, 46, 22],
    ]
    assert not torch.equal(first.query, EpisodeSampler(labels, shots=1, queries=2, seed=5)[33].query)


def test_small_classes_are_not_used():
    labels = torch.tensor([0] * 3 + [1] * 9 + [2] * 9)
    sampler = EpisodeSampler(labels, ways=2, shots=1, queries=3)
    assert {c for i in range(20) for c in sampler[i].classes.tolist()} == {1, 2}
    with pytest.raises(ValueError, match="ways must be at most 2, the classes with 4 samples, got 3"):
        EpisodeSampler(labels, ways=3, shots=1, queries=3)


def test_episodes_refuse():
    with pytest.raises(ValueError, match="ways, shots, queries and episodes must be ≥ 1"):
        EpisodeSampler(torch.arange(3), shots=0)
    with pytest.raises(IndexError, match="episode must lie in 0 … 4, got 5"):
        EpisodeSampler(torch.arange(5).repeat(20), episodes=5)[5]
    assert len(list(EpisodeSampler(torch.arange(5).repeat(20), episodes=5))) == 5


def test_hard_blocks_are_of_a_class_and_its_neighbors(tmp_path):
    from safetensors.torch import save_file

    labels = torch.arange(6).repeat_interleave(5)
    table = torch.tensor([[1, 2], [0, 2], [0, 1], [4, 5], [3, 5], [3, 4]])
    sampler = HardClassSampler(labels, table.tolist(), classes=3, each=2)
    blocks = labels[sampler.order(1, 0)].view(-1, 6)
    assert {tuple(sorted(set(row.tolist()))) for row in blocks} == {(0, 1, 2), (3, 4, 5)}
    assert torch.equal(sampler.order(1, 0), sampler.order(1, 0))
    assert not torch.equal(sampler.order(1, 0), sampler.order(1, 1))
    save_file({"neighbors": table}, tmp_path / "near.safetensors")
    stored = HardClassSampler(labels, str(tmp_path / "near.safetensors"), classes=3, each=2)
    assert torch.equal(stored.order(1, 0), sampler.order(1, 0))


@pytest.mark.parametrize(
    ("neighbors", "classes", "message"),
    [
        ([[1], [0]], 2, "neighbors must have a row"),
        ([[1], [0], [3]], 2, "below 3"),
        ([[1], [0], [1]], 3, "classes must be at most 2"),
        ("nowhere.safetensors", 2, "is not a safetensors file"),
    ],
)
def test_hard_blocks_refuse(neighbors, classes, message):
    with pytest.raises(ValueError, match=message):
        HardClassSampler(torch.arange(3), neighbors, classes, 1)
