import threading
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import Dataset, IterableDataset

from hypersphere.data import (
    ClassBalancedSampler,
    CorruptDataError,
    CropFlip,
    Digits,
    InMemory,
    Loader,
    PicturePreprocessing,
    Shuffled,
    open_source,
)
from hypersphere.data.loader import map_ahead
from tests import distributed

from .files import encoded, random, write


def images(n=23):
    return InMemory(torch.from_numpy(random(n, 1, 6, 6)), torch.arange(n) % 5, "abcde")


class Items(Dataset):
    """A dataset of the same samples that are read one at a time."""

    def __init__(self, whole):
        self.whole, self.labels, self.classes = whole, whole.labels, whole.classes

    def __len__(self):
        return len(self.whole)

    def __getitem__(self, index):
        return self.whole[index]


def epochs(loader, count=1):
    return [batch for _ in range(count) for batch in loader]


def same(first, second):
    return len(first) == len(second) and all(
        torch.equal(a, b) for x, y in zip(first, second, strict=True) for a, b in zip(x, y, strict=True)
    )


@settings(max_examples=40)
@given(st.integers(1, 30), st.integers(1, 3), st.sampled_from([1, 2, 3]), st.booleans(), st.integers(0, 3))
def test_any_number_of_processes_gets_the_same_batches(n, each, world, drop_last, epoch):
    """The interleaved batches of all processes equal those of one process, including augmentation."""
    size = 6 * each
    options = {"seed": 3, "augment": CropFlip(pad=2), "drop_last": drop_last}
    alone = Loader(images(n), size, **options)
    alone.seek(epoch)
    shares = []
    for rank in range(world):
        loader = Loader(images(n), size, rank=rank, world_size=world, **options)
        loader.seek(epoch)
        shares.append(list(loader))
        assert len(shares[-1]) == len(loader) == len(alone)
    for i, (data, labels) in enumerate(alone):
        joined, owners = torch.empty_like(data), torch.empty_like(labels)
        for rank in range(world):
            joined[rank::world], owners[rank::world] = shares[rank][i]
        assert torch.equal(joined, data)
        assert torch.equal(owners, labels)


@settings(max_examples=30)
@given(st.integers(0, 11), st.booleans())
def test_a_resumed_run_gets_the_same_batches(stop, in_memory):
    dataset = images() if in_memory else Items(images())
    make = lambda: Loader(dataset, 4, seed=1, augment=CropFlip(pad=1))
    whole = epochs(make(), 2)
    loader, seen = make(), []
    while len(seen) < stop:
        for batch in loader:
            seen.append(batch)
            if len(seen) == stop:
                break
    resumed = make()
    resumed.load_state_dict(loader.state_dict())
    seen += epochs(resumed, 2 if resumed.epoch == 0 else 1)
    assert same(seen[:12], whole)


def test_an_epoch_has_every_sample_once_in_its_own_order():
    loader = Loader(images(), 4, seed=5)
    first, second = (torch.cat([data.flatten(1) for data, _ in epochs(loader)]) for _ in range(2))
    assert loader.epoch == 2
    assert not torch.equal(first, second)
    assert torch.equal(*(torch.unique(x, dim=0) for x in (first, images().data.flatten(1))))


def test_augmentation_differs_between_epochs_and_samples():
    dataset = InMemory(torch.from_numpy(random(1, 1, 9, 9)).expand(40, 1, 9, 9), torch.zeros(40, dtype=torch.long), "a")
    loader = Loader(dataset, 40, augment=CropFlip(pad=4))
    (first, _), (second, _) = epochs(loader, 2)
    assert len(torch.unique(first.flatten(1), dim=0)) > 20
    assert not torch.equal(first, second)


def test_without_shuffling_the_order_is_that_of_the_dataset():
    assert (
        torch.cat([labels for _, labels in Loader(images(), 4, shuffle=False)]).tolist()
        == (torch.arange(23) % 5).tolist()
    )


def test_a_sampler_gives_the_order():
    dataset = images(40)
    loader = Loader(dataset, 6, seed=2, sampler=ClassBalancedSampler(dataset.labels, classes=3, each=2))
    for _, labels in loader:
        assert torch.unique(labels, return_counts=True)[1].tolist() == [2, 2, 2]
    assert len(loader) == 6


def test_reading_items_and_reading_batches_agree():
    options = {"seed": 4, "augment": CropFlip(pad=1), "rank": 1, "world_size": 2}
    memory, items = (Loader(dataset, 4, **options) for dataset in (images(25), Items(images(25))))
    assert same(epochs(memory, 2), epochs(items, 2))
    assert epochs(memory)[-1][0].shape == (0, 1, 6, 6)  # one sample is left for two processes


@pytest.mark.parametrize("kind", ["thread", "process"])
@pytest.mark.parametrize("dataset", ["folder", "items"])
def test_workers_change_nothing(tmp_path, kind, dataset):
    write(tmp_path, {f"{i % 2}/{i}.png": encoded(random(6, 6, 3, seed=i)) for i in range(10)})
    folder = open_source(tmp_path).dataset(PicturePreprocessing(size=(6, 6)))
    lazy = folder if dataset == "folder" else Items(folder.in_memory())
    before = torch.random.get_rng_state()
    options = {"seed": 1, "augment": CropFlip(pad=1)}
    with_workers = epochs(Loader(lazy, 4, workers=2, worker_kind=kind, **options))
    assert same(with_workers, epochs(Loader(folder.in_memory(), 4, **options)))
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_damaged_file_gives_a_clear_error_with_any_worker(tmp_path, kind):
    write(tmp_path, {f"{i % 2}/{i}.png": encoded(random(6, 6, 3, seed=i)) for i in range(5)})
    write(tmp_path, {"1/bad.png": b"no image"})
    dataset = open_source(tmp_path).dataset(PicturePreprocessing(size=(6, 6)))
    with pytest.raises(CorruptDataError, match=r"^\S*bad\.png: found 8 bytes that do not decode[^\n]*$"):
        epochs(Loader(dataset, 2, workers=1, worker_kind=kind))


@settings(max_examples=60)
@given(st.data())
def test_a_run_can_be_resumed_with_other_processes_and_workers(data):
    """A run with changing numbers of processes and workers gets the same batches as a single process."""
    draw = data.draw
    iterable = draw(st.booleans())
    dataset = Flow(images()) if iterable else images()
    options = {"seed": 5, "augment": CropFlip(pad=1)}
    whole = [image for batch, _ in epochs(Loader(dataset, 6, **options), 2) for image in batch]
    state, seen = Loader(dataset, 6, **options).state_dict(), []
    while len(seen) < len(whole):
        world = draw(st.sampled_from([1, 2, 3]))
        steps = draw(st.integers(1, 3))
        workers = draw(st.integers(0, 2))
        loaders = [Loader(dataset, 6, rank=r, world_size=world, workers=workers, **options) for r in range(world)]
        for loader in loaders:
            loader.load_state_dict(state)
        iterators = [iter(loader) for loader in loaders]
        for _ in range(steps):
            parts = [next(iterator, None) for iterator in iterators]
            if parts[0] is None:
                break
            joined = torch.empty(sum(len(part[0]) for part in parts), 1, 6, 6, dtype=torch.uint8)
            for rank, part in enumerate(parts):
                joined[rank::world] = part[0]
            seen += list(joined)
        for iterator in iterators:
            iterator.close()
        assert all(loader.state_dict() == loaders[0].state_dict() for loader in loaders)
        state = loaders[0].state_dict()
    assert all(torch.equal(a, b) for a, b in zip(whole, seen, strict=False))


class Flow(IterableDataset):
    """The same samples as an iterable dataset; ``epoch`` rotates their order."""

    def __init__(self, whole):
        self.whole, self.epoch = whole, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        for i in range(len(self.whole)):
            yield self.whole[(i + self.epoch) % len(self.whole)]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("drop_last", [False, True])
def test_an_iterable_dataset_comes_in_its_own_order(workers, drop_last):
    loader = Loader(Flow(images()), 5, workers=workers, drop_last=drop_last)
    first, second = list(loader), list(loader)
    expected = torch.arange(20 if drop_last else 23) % 5
    assert torch.cat([labels for _, labels in first]).tolist() == expected.tolist()
    assert second[0][1].tolist() == [1, 2, 3, 4, 0]
    with pytest.raises(TypeError, match="number of batches of an iterable dataset is not known"):
        len(loader)


def test_the_last_batch_of_an_iterable_ends_the_epoch():
    loader = Loader(Flow(images(10)), 5)
    iterator = iter(loader)
    next(iterator)
    assert loader.state_dict() == {"seed": 0, "epoch": 0, "position": 5}
    next(iterator)
    assert loader.state_dict() == {"seed": 0, "epoch": 1, "position": 0}
    assert list(Loader(Flow(images(0)), 5)) == []


@pytest.mark.parametrize(
    "option", [{"shuffle": True}, {"sampler": Shuffled(3)}, {"worker_kind": "process", "workers": 1}]
)
def test_an_iterable_cannot_be_reordered(option):
    with pytest.raises(ValueError, match="an iterable dataset has its own order"):
        Loader(Flow(images()), 5, **option)


@pytest.mark.parametrize("state", [{}, {"seed": 0, "epoch": 0}, {"seed": 0, "epoch": 0, "position": 1.5}])
@pytest.mark.untyped
def test_a_state_is_checked(state):
    with pytest.raises(ValueError, match="a loader's state must be whole numbers seed, epoch and position"):
        Loader(images(), 4).load_state_dict(state)


def test_recorded_order_never_changes():
    loader = Loader(Digits(), 8, seed=0)
    loader.seek(3, 16)
    assert next(iter(loader))[1].tolist() == [8, 6, 4, 4, 8, 2, 6, 5]


def _share(rank):
    loader = Loader(images(), 4, seed=3)
    return [loader.rank, loader.world_size, [labels for _, labels in loader]]


def test_shares_follow_the_process_group():
    results = distributed.run(_share)
    assert [result[:2] for result in results] == [[0, 2], [1, 2]]
    whole = [labels for _, labels in Loader(images(), 4, seed=3)]
    assert all(torch.equal(share, labels[0::2]) for share, labels in zip(results[0][2], whole, strict=True))
    assert all(torch.equal(share, labels[1::2]) for share, labels in zip(results[1][2], whole, strict=True))


def test_a_loader_may_be_created_before_the_process_group(monkeypatch):
    loader = Loader(images(), 4, seed=3)
    whole = [labels for _, labels in loader]
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    loader.seek(0)
    assert all(torch.equal(share, labels[1::2]) for (_, share), labels in zip(loader, whole, strict=True))
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 3)
    with pytest.raises(ValueError, match="batch_size must be a positive multiple of world_size = 3, got 4"):
        loader.check_shares()


def test_the_end_of_an_epoch_is_the_start_of_the_next():
    loader = Loader(images(8), 4)
    for _ in loader:
        pass
    assert loader.state_dict() == {"seed": 0, "epoch": 1, "position": 0}
    iterator = iter(loader)
    next(iterator), next(iterator)
    assert loader.state_dict() == {"seed": 0, "epoch": 2, "position": 0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"batch_size": 3, "world_size": 2, "rank": 0},
            "batch_size must be a positive multiple of world_size = 2, got 3",
        ),
        ({"batch_size": 0}, "batch_size must be a positive multiple"),
        ({"batch_size": 2, "world_size": 2, "rank": 2}, "rank must lie in 0 … 1, got 2"),
        ({"batch_size": 2, "workers": -1}, "workers must lie in 0 … 256"),
        ({"batch_size": 2, "workers": 1000}, "workers must lie in 0 … 256"),
    ],
)
def test_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        Loader(images(), **arguments)


@pytest.mark.parametrize(("epoch", "position"), [(-1, 0), (0, 24), (0, -1)])
def test_seek_refuses(epoch, position):
    with pytest.raises(ValueError, match="epoch must be ≥ 0 and position lie in 0 … 23"):
        Loader(images(), 4).seek(epoch, position)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_results_come_in_order(workers):
    assert list(map_ahead(lambda i: (time.sleep(0.002 * (5 - i)), i)[1], range(5), workers)) == list(range(5))


def test_an_error_is_raised_in_place_of_its_result():
    results = map_ahead(lambda i: 1 // (3 - i), range(6), 2)
    assert [next(results) for _ in range(3)] == [0, 0, 1]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_a_limited_number_of_tasks_is_computed_ahead():
    done = []
    results = map_ahead(done.append, range(100), 1)
    next(results)
    deadline = time.monotonic() + 5
    while len(done) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert 2 <= len(done) <= 3
    results.close()
    assert len(done) <= 4


def test_no_thread_is_left():
    before = threading.active_count()
    results = map_ahead(lambda i: i, range(100), 4)
    next(results)
    results.close()
    assert threading.active_count() == before
