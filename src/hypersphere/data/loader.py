"""Batches whose order and augmentation depend on (seed, epoch, position) alone."""

from collections.abc import Iterator
from itertools import islice, repeat
from typing import Any, Literal

import torch
import torch.distributed
from jaxtyping import Int, Shaped
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from .augment import Augmentation
from .errors import DataError
from .prefetch import ahead
from .samplers import Sampler, Sequential, Shuffled
from .streams import AUGMENT, Stream

Batch = tuple[Tensor, Int[Tensor, "_"]]


class Loader:
    """Iterates over batches ``(data, labels)`` of one epoch after another.

    Any dataset will do. One with ``batch(index)`` (in memory, cached, or the dataset of a source) gives many samples at once; any
    other map-style one is asked item by item; one that can only be iterated over comes in its own order.

    ``batch_size`` is that of all processes together; process ``rank`` of ``world_size`` (by default those of ``torch.distributed``
    when the loader is iterated over) takes every ``world_size``-th sample of each batch, so together they see the same batches
    as one process would, each sample augmented the same. Nothing is repeated to make shares equal: with ``drop_last=False`` the
    last batch may be smaller, and empty on some processes. Of an iterable dataset every process iterates over all and keeps its
    share.

    The state is (seed, epoch, position), with position the samples of the epoch that all processes together were given. A loop
    that is left early goes on from there when iterated again, in this process or in one that loads :meth:`state_dict`, with any
    number of processes and workers; :meth:`seek` goes anywhere.

    Args:
        dataset: Map-style, or iterable; items are (tensor, label). An iterable with ``set_epoch`` is told the epoch.
        batch_size: Samples of a batch, of all processes together.
        seed: Of the order and the augmentation.
        shuffle: Whether map-style samples are shuffled; by default they are. An iterable dataset cannot be.
        sampler: Gives another order.
        augment: Applied to whole batches in this process, with random numbers by position.
        drop_last: Leave out a last batch that is not full.
        rank: Of this process.
        world_size: Number of processes.
        workers: Batches are read and decoded ahead of their use by as many workers; 0 reads them when they are asked for.
        worker_kind: "thread", or "process" for datasets whose own Python code takes the time.

    >>> from hypersphere.data import CropFlip, Digits
    >>> loader = Loader(Digits(), batch_size=128, seed=0, augment=CropFlip(pad=1))
    >>> len(loader), next(iter(loader))[0].shape, loader.state_dict()
    (12, torch.Size([128, 1, 8, 8]), {'seed': 0, 'epoch': 0, 'position': 128})
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        seed: int = 0,
        *,
        shuffle: bool | None = None,
        sampler: Sampler | None = None,
        augment: Augmentation | None = None,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        workers: int = 0,
        worker_kind: Literal["thread", "process"] = "thread",
    ):
        self._rank, self._world_size, self.batch_size = rank, world_size, batch_size
        self.check_shares()
        if not 0 <= workers <= 256 or worker_kind not in ("thread", "process"):
            raise ValueError(
                f"workers must lie in 0 … 256 and worker_kind be 'thread' or 'process', got {workers} and {worker_kind!r}"
            )
        self.iterable = isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__")
        if self.iterable and (shuffle or sampler is not None or worker_kind == "process"):
            raise ValueError("an iterable dataset has its own order: no shuffle, sampler or worker processes")
        self.dataset, self.seed, self.augment = dataset, seed, augment
        self.drop_last, self.workers, self.worker_kind = drop_last, workers, worker_kind
        self.sampler: Sampler | None = None
        self.samples: int | None = None  # of an epoch; unknown for an iterable
        if not self.iterable:
            order = Shuffled if shuffle or shuffle is None else Sequential
            self.sampler = sampler or order(len(dataset))
            self.samples = len(self.sampler) - (len(self.sampler) % batch_size if drop_last else 0)
        self.epoch, self.position, self._ended = 0, 0, False

    def __len__(self) -> int:
        """Batches of a whole epoch, the same on every process; an iterable dataset has no known number."""
        if self.samples is None:
            raise TypeError("the number of batches of an iterable dataset is not known")
        return -(-self.samples // self.batch_size)

    @property
    def rank(self) -> int:
        """Which process this is: as given, or as ``torch.distributed`` says now, which may start after the loader is made."""
        return (torch.distributed.get_rank() if _running() else 0) if self._rank is None else self._rank

    @property
    def world_size(self) -> int:
        """How many processes divide each batch."""
        return (
            (torch.distributed.get_world_size() if _running() else 1) if self._world_size is None else self._world_size
        )

    def check_shares(self) -> None:
        """Raise a ``ValueError`` if batches cannot be divided evenly among the processes that there are now."""
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank must lie in 0 … {self.world_size - 1}, got {self.rank}")
        if self.batch_size < 1 or self.batch_size % self.world_size:
            raise ValueError(
                f"batch_size must be a positive multiple of world_size = {self.world_size}, got {self.batch_size}"
            )

    def __iter__(self) -> Iterator[Batch]:
        self.check_shares()
        epoch = self.state_dict()["epoch"]
        self.seek(epoch, self.state_dict()["position"])
        for start, stop, ended, (data, labels) in self._streamed() if self.iterable else self._indexed():
            if self.augment is not None:
                data = self._augmented(data, epoch, start, stop)
            self.position, self._ended = stop, ended
            yield data, labels
        self.seek(epoch + 1)

    def seek(self, epoch: int, position: int = 0) -> None:
        """Go to a position of an epoch."""
        if epoch < 0 or position < 0 or (self.samples is not None and position > self.samples):
            limit = "" if self.samples is None else f" … {self.samples}"
            raise ValueError(f"epoch must be ≥ 0 and position lie in 0{limit}, got {epoch} and {position}")
        self.epoch, self.position = epoch, position
        self._ended = self.samples is not None and position >= self.samples

    def state_dict(self) -> dict[str, int]:
        """Where the loader is; the end of an epoch is the start of the next."""
        return {
            "seed": self.seed,
            "epoch": self.epoch + self._ended,
            "position": 0 if self._ended else self.position,
        }

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go where another loader was: of the same data, with any number of processes and workers."""
        if state.keys() != {"seed", "epoch", "position"} or not all(type(value) is int for value in state.values()):
            raise ValueError(f"a loader's state must be whole numbers seed, epoch and position, got {state}")
        self.seek(state["epoch"], state["position"])
        self.seed = state["seed"]

    def _augmented(self, data: Tensor, epoch: int, start: int, stop: int) -> Tensor:
        assert self.augment is not None
        draws = self.augment.draws(data.shape[1:])
        # Four numbers are one step of the counter: whole steps a sample keep position p at p·width for any batch and share.
        width = -(-draws // 4) * 4
        stream = Stream(self.seed, AUGMENT, epoch, start=start * width)
        u = stream.uniforms((stop - start) * width).reshape(stop - start, width)
        try:
            return self.augment(data, u[self.rank :: self.world_size, :draws])
        except (RuntimeError, IndexError, TypeError) as error:
            if isinstance(error, RuntimeError) and "memory" in str(error):
                raise
            kind = type(self.augment).__name__
            raise ValueError(
                f"augment={kind} does not fit samples of shape {tuple(data.shape[1:])}: {error}"
            ) from error

    def _indexed(self) -> Iterator[tuple[int, int, bool, Batch]]:
        """(start, stop, whether it is the last, this process's share) of each batch from the position on."""
        assert self.sampler is not None
        assert self.samples is not None
        samples = self.samples
        order = self.sampler.order(self.seed, self.epoch)[:samples]
        bounds = [
            (start, min(start + self.batch_size, samples)) for start in range(self.position, samples, self.batch_size)
        ]
        shares = [order[start + self.rank : stop : self.world_size] for start, stop in bounds]
        read = _Shares(self.dataset)
        if self.workers and self.worker_kind == "process":
            fetched = _by_processes(read, shares, self.workers)
        else:
            fetched = ahead(read.fetch, shares, self.workers)
        for (start, stop), batch in zip(bounds, fetched, strict=True):
            yield start, stop, stop >= samples, batch

    def _streamed(self) -> Iterator[tuple[int, int, bool, Batch]]:
        """The same of an iterable dataset; one batch is looked ahead, to know which is the last."""
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(self.epoch)
        items = islice(iter(self.dataset), self.position, None)
        # One worker: an iterator cannot be asked by two at once.
        rows = ahead(lambda _: list(islice(items, self.batch_size)), repeat(None), min(self.workers, 1))
        start, current = self.position, next(rows)
        while current and not (self.drop_last and len(current) < self.batch_size):
            following = next(rows) if len(current) == self.batch_size else []
            last = not following or (self.drop_last and len(following) < self.batch_size)
            yield start, start + len(current), last, _stacked(current[self.rank :: self.world_size], current[0])
            start, current = start + len(current), following


def _running() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


class _Shares(Dataset[Any]):
    """A map-style dataset asked for many samples at once; a class of its own, since processes are given it."""

    def __init__(self, dataset: Any):
        self.dataset = dataset

    def fetch(self, index: Int[Tensor, "_"]) -> Batch:
        """The samples at ``index``, in one tensor."""
        if hasattr(self.dataset, "batch"):
            data, labels = self.dataset.batch(index)
            return data, labels
        items = [self.dataset[i] for i in index.tolist()]
        return _stacked(items, items[0] if items else self.dataset[0])

    def __getitem__(self, index: Int[Tensor, "_"]) -> Batch | DataError:
        try:
            return self.fetch(index)
        except DataError as error:  # carried over as it is: a worker's traceback would hide the one sentence
            return error


def _by_processes(read: _Shares, shares: list[Int[Tensor, "_"]], workers: int) -> Iterator[Batch]:
    # Its own generator: a plain DataLoader would draw a seed from torch's and shift the random numbers of the run.
    sampler: Any = shares
    loaded = DataLoader(read, None, sampler=sampler, num_workers=workers, generator=torch.Generator())
    for batch in loaded:
        if isinstance(batch, DataError):
            raise batch
        yield batch[0], batch[1]


def _stacked(items: list[Any], example: Any) -> tuple[Shaped[Tensor, "b ..."], Int[Tensor, "b"]]:
    """Items (tensor, label) as one batch; none of them as an empty one of the example's shape."""
    inputs = [torch.as_tensor(item[0]) for item in items]
    data = torch.stack(inputs) if inputs else torch.as_tensor(example[0])[None][:0]
    return data, torch.tensor([int(item[1]) for item in items], dtype=torch.long)
