import pytest
import torch

from hypersphere.data import InMemory

from .files import random


def test_batches_are_its_samples():
    dataset = InMemory(torch.from_numpy(random(5, 3, 4, 4)), torch.tensor([1, 0, 2, 1, 1]), ("a", "b", "c"))
    index = torch.tensor([4, 0, 0])
    data, labels = dataset.batch(index)
    assert torch.equal(data, torch.stack([dataset[i][0] for i in index.tolist()]))
    assert labels.tolist() == [1, 1, 1]
    assert dataset.to("cpu").labels.dtype == torch.int64


@pytest.mark.parametrize("labels", [[0, 2], [-1, 0]])
def test_refuses_labels_without_a_class(labels):
    with pytest.raises(ValueError, match="labels must lie in 0 … 1"):
        InMemory(torch.zeros(2, 1), torch.tensor(labels), ("a", "b"))
