"""Batches whose order and augmentation depend on (seed, epoch, position) alone."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import DataLoader

from .augment import Augmentation
from .samplers import Sampler, Sequential, Shuffled
from .streams import AUGMENT, Stream


class Loader:
    """Iterates over batches ``(data, labels)`` of one epoch after another.

    ``batch_size`` is that of all processes together; process ``rank`` of ``world_size`` (by default those of ``torch.distributed``) takes
    every ``world_size``-th sample of each batch, so together they see the same batches as one process would, each sample augmented the
    same. Nothing is repeated to make shares equal: with ``drop_last=False`` the last batch may be smaller, and empty on some processes.

    A dataset with ``batch(index)`` (one in memory) is indexed and augmented in this process. Any other is decoded item by item, by
    ``workers`` processes if there are any, and augmented here.

    The state is (seed, epoch, position), with position the samples already given. A loop that is left early goes on from there when
    iterated again, in this process or in one that loads :meth:`state_dict`; :meth:`seek` goes anywhere.

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
        shuffle: bool = True,
        sampler: Sampler | None = None,
        augment: Augmentation | None = None,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        workers: int = 0,
    ):
        running = torch.distributed.is_available() and torch.distributed.is_initialized()
        self.world_size = (torch.distributed.get_world_size() if running else 1) if world_size is None else world_size
        self.rank = (torch.distributed.get_rank() if running else 0) if rank is None else rank
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank must lie in 0 … {self.world_size - 1}, got {self.rank}")
        if batch_size < 1 or batch_size % self.world_size:
            raise ValueError(
                f"batch_size must be a positive multiple of world_size = {self.world_size}, got {batch_size}"
            )
        if workers < 0 or (workers and hasattr(dataset, "batch")):
            raise ValueError(f"workers must be 0 for a dataset in memory and ≥ 0 for others, got {workers}")
        self.dataset, self.batch_size, self.seed, self.augment, self.workers = (
            dataset,
            batch_size,
            seed,
            augment,
            workers,
        )
        self.sampler = sampler or (Shuffled(len(dataset)) if shuffle else Sequential(len(dataset)))
        self.samples = len(self.sampler) - (len(self.sampler) % batch_size if drop_last else 0)
        self.epoch, self.position = 0, 0

    def __len__(self) -> int:
        """Batches of a whole epoch, the same on every process."""
        return -(-self.samples // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = self.sampler.order(self.seed, self.epoch)[: self.samples]
        bounds = [
            (start, min(start + self.batch_size, self.samples))
            for start in range(self.position, self.samples, self.batch_size)
        ]
        shares = [order[start + self.rank : stop : self.world_size] for start, stop in bounds]
        epoch = self.epoch
        for (start, stop), (data, labels) in zip(bounds, self._fetch(shares), strict=True):
            if self.augment is not None:
                data = self._augmented(data, epoch, start, stop)
            self.position = stop
            yield data, labels
        self.seek(epoch + 1)

    def seek(self, epoch: int, position: int = 0) -> None:
        """Go to a position of an epoch."""
        if epoch < 0 or not 0 <= position <= self.samples:
            raise ValueError(f"epoch must be ≥ 0 and position lie in 0 … {self.samples}, got {epoch} and {position}")
        self.epoch, self.position = epoch, position

    def state_dict(self) -> dict[str, int]:
        """Where the loader is; the end of an epoch is the start of the next."""
        ended = self.position >= self.samples
        return {"seed": self.seed, "epoch": self.epoch + ended, "position": 0 if ended else self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go where another loader was."""
        self.seed = state["seed"]
        self.seek(state["epoch"], state["position"])

    def _augmented(self, data: Tensor, epoch: int, start: int, stop: int) -> Tensor:
        assert self.augment is not None
        draws = self.augment.draws(data.shape[1:])
        # Four numbers are one step of the counter: whole steps for each sample keep position p at p·width for any batch and share.
        width = -(-draws // 4) * 4
        u = (
            Stream(self.seed, AUGMENT, epoch, start=start * width)
            .uniforms((stop - start) * width)
            .reshape(stop - start, width)
        )
        return self.augment(data, u[self.rank :: self.world_size, :draws])

    def _fetch(self, shares: list[Int[Tensor, "_"]]) -> Iterator[tuple[Tensor, Tensor]]:
        if hasattr(self.dataset, "batch"):
            yield from map(self.dataset.batch, shares)
            return
        full = [share.tolist() for share in shares if len(share)]
        # Its own generator: a plain DataLoader would draw a seed from torch's and shift the random numbers of the run.
        loaded = iter(
            DataLoader(self.dataset, batch_sampler=full, num_workers=self.workers, generator=torch.Generator())
        )
        for share in shares:
            if len(share):
                yield tuple(next(loaded))
            else:
                yield self.dataset[0][0][None][:0], torch.empty(0, dtype=torch.long)
