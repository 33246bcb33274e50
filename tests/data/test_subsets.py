import pickle

import pytest
import torch

from hypersphere.data import (
    CIFAR10,
    MNIST,
    Digits,
    ImbalancedMultiple,
    ImbalancedSingle,
    InMemory,
    OfClasses,
    PicturePreprocessing,
    Subset,
    open_source,
)

from .files import encoded, random, write


def numbered(counts):
    """Return samples whose single value is their index."""
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))[torch.randperm(sum(counts))]
    return InMemory(torch.arange(len(labels))[:, None], labels, [str(c) for c in range(len(counts))])


def test_a_subset_of_a_subset():
    whole = numbered([5, 5])
    part = Subset(whole, torch.tensor([7, 2, 2]))
    data, labels = part.batch(torch.tensor([0, 2]))
    assert data.flatten().tolist() == [7, 2]
    assert labels.tolist() == whole.labels[[7, 2]].tolist()
    assert [part[i][0].item() for i in range(len(part))] == [7, 2, 2]
    assert Subset(part, torch.tensor([1])).batch(torch.tensor([0]))[0].item() == 2
    assert pickle.loads(pickle.dumps(part)).batch(torch.tensor([1]))[0].item() == 2


def test_a_subset_of_files_is_read_from_files(tmp_path):
    write(tmp_path, {f"{c}/{i}.png": encoded(random(4, 4)) for c in "ab" for i in range(2)})
    part = Subset(open_source(tmp_path).dataset(PicturePreprocessing()), torch.tensor([3]))
    assert part[0][1] == 1
    assert torch.equal(part.batch(torch.tensor([0]))[0][0], part[0][0])


def test_classes_are_renumbered_in_the_order_given():
    whole = numbered([4, 3, 2, 1])
    part = OfClasses(whole, [3, 1])
    assert part.classes == ("3", "1")
    assert torch.bincount(part.labels).tolist() == [1, 3]
    for i in range(4):
        sample, label = part[i]
        assert whole.classes[whole.labels[sample]] == part.classes[label]


@pytest.mark.parametrize("classes", [[0, 0], [4], [-1]])
def test_classes_refuse(classes):
    with pytest.raises(ValueError, match="classes must be different numbers 0 … 3"):
        OfClasses(numbered([1, 1, 1, 1]), classes)


@pytest.mark.parametrize(("keep", "left"), [(0.1, 5), (7, 7), (0, 0), (1.0, 50), (80, 50)])
def test_single_imbalance_reduces_the_given_classes(keep, left):
    part = ImbalancedSingle(numbered([50, 50, 50]), classes=(0, 2), keep=keep)
    assert torch.bincount(part.labels, minlength=3).tolist() == [left, 50, left]
    assert (part.index.diff() > 0).all()


def test_multiple_imbalance_follows_the_class_number():
    assert torch.bincount(ImbalancedMultiple(numbered([50] * 10)).labels).tolist() == list(range(5, 51, 5))
    assert torch.bincount(ImbalancedMultiple(numbered([50] * 3), step=2).labels).tolist() == [2, 4, 6]


def test_the_selection_depends_only_on_the_seed():
    whole = numbered([50, 50])
    first, again, other = (ImbalancedSingle(whole, keep=0.2, seed=seed).index for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    digits = ImbalancedSingle(Digits(), keep=3, seed=2)
    assert digits.index[digits.labels == 0].tolist() == [321, 828, 1152]


@pytest.mark.parametrize("keep", [-0.1, 1.1, -1])
def test_single_imbalance_refuses(keep):
    with pytest.raises(ValueError, match="keep must be a fraction in"):
        ImbalancedSingle(numbered([2]), keep=keep)


def test_multiple_imbalance_and_subsets_refuse():
    with pytest.raises(ValueError, match="step must be an integer ≥ 1, got 0"):
        ImbalancedMultiple(numbered([2, 2, 2]))
    with pytest.raises(ValueError, match="index must lie in 0 … 1, got 2 … 2"):
        Subset(numbered([2]), torch.tensor([2]))


def test_the_numbers_of_the_text(real):
    cifar = CIFAR10(real("cifar10"))
    assert len(ImbalancedSingle(cifar)) == 45500  # D.1
    assert len(ImbalancedMultiple(cifar)) == 27500
    mnist = ImbalancedSingle(MNIST(real("mnist")), keep=100)  # 5.5.1
    assert int((mnist.labels == 0).sum()) == 100
