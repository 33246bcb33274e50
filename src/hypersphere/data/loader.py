"""Batches whose order and augmentation depend only on (seed, epoch, position), prepared in advance by threads."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice, repeat
from typing import Any, Literal, TypeVar

import torch
import torch.distributed
from jaxtyping import Int, Shaped
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from ..files import is_out_of_memory
from .augment import Augmentation
from .errors import DataError
from .samplers import Sampler, Sequential, Shuffled
from .streams import AUGMENT, Stream

Batch = tuple[Tensor, Int[Tensor, "_"]]
Task = TypeVar("Task")
Result = TypeVar("Result")


class Loader:
    """Iterator over the batches ``(data, labels)`` of successive epochs.

    Any dataset works. A dataset with ``batch(index)`` (in memory, cached, or of a source) returns many samples at once. Other
    map-style datasets are read item by item, and an iterable dataset keeps its own order.

    ``batch_size`` is the number of samples in a batch of all processes together. Process ``rank`` of ``world_size`` processes
    (by default those of ``torch.distributed`` at the time of the iteration) gets every ``world_size``-th sample of each batch.
    Together, the processes get the same batches as a single process, with the same augmentation of each sample. No sample is
    repeated to make shares equal: with ``drop_last=False``, the last batch may be smaller, and empty on some processes. With an
    iterable dataset, every process reads all samples and keeps its share.

    The state is (seed, epoch, position), where position counts the samples of the epoch that all processes have received. After
    a loop has ended early, the next iteration continues at this position. A loader in another process continues there after
    :meth:`load_state_dict`, with any number of processes and workers. :meth:`seek` moves to any position.

    Args:
        dataset: A map-style or iterable dataset of (tensor, label). ``set_epoch`` of an iterable dataset is called if it exists.
        batch_size: Samples per batch, over all processes.
        seed: Seed of order and augmentation.
        shuffle: Whether to shuffle a map-style dataset; True by default. An iterable dataset cannot be shuffled.
        sampler: Determines another order.
        augment: Applied to whole batches in this process, with random numbers by position.
        drop_last: Drop an incomplete last batch.
        rank: Rank of this process.
        world_size: Number of processes.
        workers: Number of workers that read and decode batches in advance; 0 reads them when they are requested.
        worker_kind: "thread", or "process" for datasets that spend their time in Python code.

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
        self.samples: int | None = None  # samples per epoch; unknown for an iterable dataset
        if not self.iterable:
            order = Shuffled if shuffle or shuffle is None else Sequential
            self.sampler = sampler or order(len(dataset))
            self.samples = len(self.sampler) - (len(self.sampler) % batch_size if drop_last else 0)
        self.epoch, self.position, self._ended = 0, 0, False

    def __len__(self) -> int:
        """Return the number of batches per epoch, the same on every process. It is unknown for an iterable dataset."""
        if self.samples is None:
            raise TypeError("the number of batches of an iterable dataset is not known")
        return -(-self.samples // self.batch_size)

    @property
    def rank(self) -> int:
        """Rank of this process: as given, or the current one of ``torch.distributed``, which may start after the loader."""
        if self._rank is not None:
            return self._rank
        return torch.distributed.get_rank() if _is_distributed() else 0

    @property
    def world_size(self) -> int:
        """Number of processes that share each batch."""
        if self._world_size is not None:
            return self._world_size
        return torch.distributed.get_world_size() if _is_distributed() else 1

    def check_shares(self) -> None:
        """Raise a ``ValueError`` if batches cannot be divided evenly among the current processes."""
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
        for start, stop, ended, (data, labels) in self._iterate_stream() if self.iterable else self._iterate_indexed():
            if self.augment is not None:
                data = self._augment(data, epoch, start, stop)
            self.position, self._ended = stop, ended
            yield data, labels
        self.seek(epoch + 1)

    def seek(self, epoch: int, position: int = 0) -> None:
        """Move to a position of an epoch."""
        if epoch < 0 or position < 0 or (self.samples is not None and position > self.samples):
            limit = "" if self.samples is None else f" … {self.samples}"
            raise ValueError(f"epoch must be ≥ 0 and position lie in 0{limit}, got {epoch} and {position}")
        self.epoch, self.position = epoch, position
        self._ended = self.samples is not None and position >= self.samples

    def state_dict(self) -> dict[str, int]:
        """Return the position; the end of an epoch is the start of the next."""
        return {
            "seed": self.seed,
            "epoch": self.epoch + self._ended,
            "position": 0 if self._ended else self.position,
        }

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Move to the position of another loader of the same data, with any number of processes and workers."""
        if state.keys() != {"seed", "epoch", "position"} or not all(type(value) is int for value in state.values()):
            raise ValueError(f"a loader's state must be whole numbers seed, epoch and position, got {state}")
        self.seek(state["epoch"], state["position"])
        self.seed = state["seed"]

    def _augment(self, data: Tensor, epoch: int, start: int, stop: int) -> Tensor:
        assert self.augment is not None
        draws = self.augment.draws(data.shape[1:])
        # One step of the counter gives four numbers. With whole steps per sample, the numbers of sample p start at p·width.
        width = -(-draws // 4) * 4
        stream = Stream(self.seed, AUGMENT, epoch, start=start * width)
        u = stream.uniforms((stop - start) * width).reshape(stop - start, width)
        try:
            return self.augment(data, u[self.rank :: self.world_size, :draws])
        except (RuntimeError, IndexError, TypeError) as error:
            if is_out_of_memory(error):
                raise
            kind = type(self.augment).__name__
            raise ValueError(
                f"augment={kind} does not fit samples of shape {tuple(data.shape[1:])}: {error}"
            ) from error

    def _iterate_indexed(self) -> Iterator[tuple[int, int, bool, Batch]]:
        """Yield (start, stop, whether it is the last, this process's share) of each batch from the position on."""
        assert self.sampler is not None
        assert self.samples is not None
        samples = self.samples
        order = self.sampler.order(self.seed, self.epoch)[:samples]
        bounds = [
            (start, min(start + self.batch_size, samples)) for start in range(self.position, samples, self.batch_size)
        ]
        shares = [order[start + self.rank : stop : self.world_size] for start, stop in bounds]
        read = _BatchReader(self.dataset)
        if self.workers and self.worker_kind == "process":
            fetched = _read_in_processes(read, shares, self.workers)
        else:
            fetched = map_ahead(read.fetch, shares, self.workers)
        for (start, stop), batch in zip(bounds, fetched, strict=True):
            yield start, stop, stop >= samples, batch

    def _iterate_stream(self) -> Iterator[tuple[int, int, bool, Batch]]:
        """Yield the same for an iterable dataset, with one batch of lookahead to recognize the last one."""
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(self.epoch)
        items = islice(iter(self.dataset), self.position, None)
        # One worker, because an iterator cannot be shared.
        rows = map_ahead(lambda _: list(islice(items, self.batch_size)), repeat(None), min(self.workers, 1))
        start, current = self.position, next(rows)
        while current and not (self.drop_last and len(current) < self.batch_size):
            following = next(rows) if len(current) == self.batch_size else []
            last = not following or (self.drop_last and len(following) < self.batch_size)
            yield start, start + len(current), last, _stack(current[self.rank :: self.world_size], current[0])
            start, current = start + len(current), following


def _is_distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


class _BatchReader(Dataset[Any]):
    """A map-style dataset that returns many samples at once; a class, because it is sent to worker processes."""

    def __init__(self, dataset: Any):
        self.dataset = dataset

    def fetch(self, index: Int[Tensor, "_"]) -> Batch:
        """Return the samples at ``index`` in one tensor."""
        if hasattr(self.dataset, "batch"):
            data, labels = self.dataset.batch(index)
            return data, labels
        items = [self.dataset[i] for i in index.tolist()]
        return _stack(items, items[0] if items else self.dataset[0])

    def __getitem__(self, index: Int[Tensor, "_"]) -> Batch | DataError:
        try:
            return self.fetch(index)
        except DataError as error:  # raised unchanged, because a worker's traceback would hide the message
            return error


def _read_in_processes(read: _BatchReader, shares: list[Int[Tensor, "_"]], workers: int) -> Iterator[Batch]:
    # A separate generator: otherwise DataLoader draws a seed from torch's generator and changes the random numbers of the run.
    sampler: Any = shares
    loaded = DataLoader(read, None, sampler=sampler, num_workers=workers, generator=torch.Generator())
    for batch in loaded:
        if isinstance(batch, DataError):
            raise batch
        yield batch[0], batch[1]


def _stack(items: list[Any], example: Any) -> tuple[Shaped[Tensor, "b ..."], Int[Tensor, "b"]]:
    """Return items (tensor, label) as one batch; no items give an empty batch of the example's shape."""
    inputs = [torch.as_tensor(item[0]) for item in items]
    data = torch.stack(inputs) if inputs else torch.as_tensor(example[0])[None][:0]
    return data, torch.tensor([int(item[1]) for item in items], dtype=torch.long)


def map_ahead(work: Callable[[Task], Result], tasks: Iterable[Task], workers: int) -> Iterator[Result]:
    """Yield ``work(task)`` of each task in order, computed by ``workers`` threads at most two tasks each in advance.

    Without workers each task runs when its result is requested. An exception is raised in place of its result. A caller that
    stops early cancels the tasks that have not started.

    >>> list(map_ahead(lambda i: i * i, range(5), workers=2))
    [0, 1, 4, 9, 16]
    """
    if workers == 0:
        yield from map(work, tasks)
        return
    waiting = iter(tasks)
    pending: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="hypersphere-loader") as pool:
        try:
            pending.extend(pool.submit(work, task) for task in islice(waiting, 2 * workers))
            while pending:
                result = pending.popleft().result()
                pending.extend(pool.submit(work, task) for task in islice(waiting, 1))
                yield result
        finally:
            for future in pending:
                future.cancel()
