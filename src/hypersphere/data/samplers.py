"""Sample orders: shuffled, sequential, class-balanced and few-shot episodes. Each depends only on (seed, epoch)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Int
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from .streams import BATCH, EPISODE, ORDER, Stream


@runtime_checkable
class Sampler(Protocol):
    """Interface of objects that determine the order of the samples in an epoch."""

    def order(self, seed: int, epoch: int) -> Int[Tensor, "_"]:
        """Return the dataset index at each position."""

    def __len__(self) -> int: ...


class Shuffled:
    """Every sample once, in random order.

    >>> Shuffled(5).order(seed=0, epoch=0).tolist(), Shuffled(5).order(seed=0, epoch=1).tolist()
    ([3, 2, 4, 1, 0], [2, 1, 0, 4, 3])
    """

    def __init__(self, n: int):
        self.n = n

    def __len__(self) -> int:
        return self.n

    def order(self, seed: int, epoch: int) -> Int[Tensor, "n"]:
        """Return a permutation that depends only on (seed, epoch)."""
        return Stream(seed, ORDER, epoch).permutation(self.n)


class Sequential(Shuffled):
    """Every sample once, in the dataset's order.

    >>> Sequential(4).order(seed=0, epoch=1).tolist()
    [0, 1, 2, 3]
    """

    def order(self, seed: int, epoch: int) -> Int[Tensor, "n"]:
        """Return 0 … n − 1."""
        return torch.arange(self.n)


class ClassBalancedSampler:
    """Blocks of ``classes`` random classes with ``each`` random samples of each: use a batch size of ``classes × each``.

    Every class is equally likely, whatever its number of samples. An epoch has as many whole blocks as fit into the dataset, at least
    one.

    Args:
        labels: Class of each sample.
        classes: Classes per block.
        each: Samples per class. If a class has fewer samples, some are repeated.

    >>> sampler = ClassBalancedSampler(torch.tensor([0, 0, 0, 0, 0, 1, 1, 2]), classes=2, each=2)
    >>> len(sampler), sampler.order(seed=0, epoch=3).shape
    (8, torch.Size([8]))
    """

    def __init__(self, labels: Int[Tensor, "n"], classes: int, each: int):
        self.members = _group_by_class(labels)
        if not 1 <= classes <= len(self.members) or each < 1:
            raise ValueError(f"classes must lie in 1 … {len(self.members)} and each be ≥ 1, got {classes} and {each}")
        self.classes, self.each = classes, each
        self.blocks = max(len(labels) // (classes * each), 1)

    def __len__(self) -> int:
        return self.blocks * self.classes * self.each

    def order(self, seed: int, epoch: int) -> Int[Tensor, "_"]:
        """Return the blocks one after another, each sorted by class."""
        order = []
        for block in range(self.blocks):
            stream = Stream(seed, BATCH, epoch, block)
            for c in self.choose_classes(stream):
                members = self.members[c]
                repeats, rest = divmod(self.each, len(members))
                order += [members] * repeats + [members[stream.distinct(rest, len(members))]]
        return torch.cat(order)

    def choose_classes(self, stream: Stream) -> list[int]:
        """Return the classes of a block, as positions among those that occur."""
        return stream.distinct(self.classes, len(self.members)).tolist()


class HardClassSampler(ClassBalancedSampler):
    """Blocks of a random class and some of its most confusable classes, with ``each`` random samples per class.

    It differs from :class:`ClassBalancedSampler` in that the other classes of a block are neighbors of the first. A loss over pairs
    then gets hard negatives in every batch. ``recognition.find_confusable_classes`` computes the neighbors from the features of an
    earlier fit. They do not change during a run, so the run can be resumed. Use this sampler after a first training, when random
    negatives are no longer hard.

    Args:
        labels: The class of each sample.
        neighbors: The nearest classes of each class: a table with one row per class in ``labels``, in ascending order. Entries are
            row numbers. Or the path of a safetensors file with such a tensor ``neighbors``.
        classes: Classes per block, at most one more than there are neighbors.
        each: Samples per class.

    Raises:
        ValueError: If the table does not fit.

    >>> sampler = HardClassSampler(torch.arange(4).repeat(3), neighbors=[[1], [0], [3], [2]], classes=2, each=2)
    >>> labels = torch.arange(4).repeat(3)[sampler.order(seed=0, epoch=0)]
    >>> sorted(labels[:4].unique().tolist()) in ([0, 1], [2, 3])
    True
    """

    def __init__(self, labels: Int[Tensor, "n"], neighbors: str | Sequence[Sequence[int]], classes: int, each: int):
        super().__init__(labels, classes, each)
        if isinstance(neighbors, str):
            try:
                table = load_file(neighbors)["neighbors"]
            except (OSError, KeyError, SafetensorError) as error:
                raise ValueError(
                    f"neighbors={neighbors!r} is not a safetensors file with a tensor neighbors: {error}"
                ) from error
        else:
            table = torch.as_tensor(neighbors)
        count = len(self.members)
        if table.ndim != 2 or len(table) != count or not bool(((table >= 0) & (table < count)).all()):
            raise ValueError(
                f"neighbors must have a row of class positions below {count} for each class, got {tuple(table.shape)}"
            )
        if classes > table.shape[1] + 1:
            raise ValueError(
                f"classes must be at most {table.shape[1] + 1}, as each class has {table.shape[1]} neighbors, got {classes}"
            )
        self.neighbors = table.long()

    def choose_classes(self, stream: Stream) -> list[int]:
        """Return a random class and some of its neighbors."""
        first = int(stream.integers(1, len(self.members)))
        others = self.neighbors[first][stream.distinct(self.classes - 1, self.neighbors.shape[1])]
        return [first, *others.tolist()]


@dataclass(frozen=True, eq=False)
class Episode:
    """One few-shot task: dataset indices of ``support`` (ways, shots) and ``query`` (ways, queries), and their ``classes`` (ways,).

    >>> labels = torch.arange(6).repeat(4)
    >>> episode = EpisodeSampler(labels, ways=3, shots=1, queries=2)[0]
    >>> bool((labels[episode.query] == episode.classes[:, None]).all())
    True
    """

    support: Int[Tensor, "ways shots"]
    query: Int[Tensor, "ways queries"]
    classes: Int[Tensor, "ways"]


class EpisodeSampler:
    """Few-shot tasks, each with some classes, support samples and query samples (7.5, F.3: 5-way).

    ``sampler[i]`` depends only on (seed, i), so tasks can be divided among processes, and a run can be resumed at any task.

    Args:
        labels: Class of each sample. Classes with fewer than ``shots + queries`` samples are not used.
        ways: Classes per task.
        shots: Support samples per class.
        queries: Query samples per class.
        episodes: Number of tasks.
        seed: Seed of the tasks.

    >>> episodes = EpisodeSampler(torch.arange(6).repeat(4), ways=5, shots=1, queries=3, seed=1)
    >>> episodes[7].support.shape, episodes[7].query.shape
    (torch.Size([5, 1]), torch.Size([5, 3]))
    """

    def __init__(
        self,
        labels: Int[Tensor, "n"],
        ways: int = 5,
        shots: int = 5,
        queries: int = 15,
        episodes: int = 600,
        seed: int = 0,
    ):
        if min(ways, shots, queries, episodes) < 1:
            raise ValueError(
                f"ways, shots, queries and episodes must be ≥ 1, got {ways}, {shots}, {queries}, {episodes}"
            )
        self.members = [m for m in _group_by_class(labels) if len(m) >= shots + queries]
        if len(self.members) < ways:
            raise ValueError(
                f"ways must be at most {len(self.members)}, the classes with {shots + queries} samples, got {ways}"
            )
        self.labels, self.ways, self.shots, self.queries = labels.cpu(), ways, shots, queries
        self.episodes, self.seed = episodes, seed

    def __len__(self) -> int:
        return self.episodes

    def __getitem__(self, index: int) -> Episode:
        if not 0 <= index < self.episodes:
            raise IndexError(f"episode must lie in 0 … {self.episodes - 1}, got {index}")
        stream = Stream(self.seed, EPISODE, index)
        chosen = [self.members[c] for c in stream.distinct(self.ways, len(self.members)).tolist()]
        rows = torch.stack([members[stream.distinct(self.shots + self.queries, len(members))] for members in chosen])
        return Episode(rows[:, : self.shots], rows[:, self.shots :], self.labels[rows[:, 0]])


def _group_by_class(labels: Int[Tensor, "n"]) -> list[Int[Tensor, "_"]]:
    """Return the indices of each class that occurs, in ascending order of the classes."""
    order = torch.argsort(labels.cpu(), stable=True)
    return list(order.split(torch.unique(labels.cpu(), return_counts=True)[1].tolist()))
