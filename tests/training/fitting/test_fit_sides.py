import numpy as np
import torch

from hypersphere.data import ArraySource, InMemory, PicturePreprocessing
from hypersphere.training.fitting.division import divide
from hypersphere.training.fitting.fit_sides import first_identities, sample_pictures, samples


def test_watched_are_whole_identities():
    labels = torch.arange(10).repeat_interleave(5)
    few = first_identities(labels, 17)
    assert len(few) == 15
    assert (torch.bincount(labels[few]).unique()).tolist() in ([0, 5], [5])
    assert torch.equal(first_identities(labels, 50), torch.arange(50))


def test_one_large_identity_leaves_room_for_another():
    labels = torch.tensor([0] * 100 + [1] * 100)
    assert len(labels[first_identities(labels, 10)].unique()) == 2


def test_sides_are_disjoint_and_the_same_from_memory_and_from_files():
    draw = np.random.default_rng(0).integers(0, 256, (40, 6, 6), dtype=np.uint8)
    source = ArraySource(draw, np.arange(8).repeat(5))
    division = divide(source, 0.25)
    prepare = PicturePreprocessing(size=(6, 6), channels=1)
    options = {"cache": None, "workers": 0, "watched": 5}
    memory, read = (samples(source, division, prepare, memory=memory, **options) for memory in (True, False))
    index = torch.arange(len(division.train))
    assert torch.equal(memory.train.batch(index)[0], read.train.batch(index)[0])
    assert torch.equal(memory.train.batch(index)[0][:, 0], torch.from_numpy(draw)[division.train])
    assert memory.train.labels.max() == 5
    assert len(memory.watched.labels.unique()) == 2
    assert len(memory.measured) == 10


def test_pictures_for_choices_are_spread_evenly():
    data = (torch.arange(5000) // 20).to(torch.uint8)[:, None, None, None].expand(-1, 1, 2, 2)
    found = sample_pictures(InMemory(data, torch.arange(5000) % 7, [str(i) for i in range(7)]), 2048)
    assert len(found) == 2048
    assert found[0].max() == 0
    assert found[-1].max() == 249
    assert found[1024].max() == 125
