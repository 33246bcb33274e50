"""Features of every picture of a source."""

import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor

from ..data.prefetch import ahead
from ..data.sources import Source
from ..evaluation import gather_features
from .embedder import Embedder


def source_features(embedder: Embedder, source: Source, batch: int = 64, *, workers: int = 2) -> Float[Tensor, "n d"]:
    """Return the features of a source's records in their order, on the CPU.

    Where ``torch.distributed`` is initialised, every process embeds its share, and all get the whole.

    Args:
        embedder: What makes the features; it is used on the device it is on.
        source: Labelled pictures, opened by :func:`hypersphere.data.open_source`.
        batch: Images at a time.
        workers: Threads that read and decode ahead of the network.

    Raises:
        DataError: naming the picture that cannot be read.
    """
    if batch < 1:
        raise ValueError(f"batch must be an integer ≥ 1, got {batch!r}")
    running = dist.is_available() and dist.is_initialized()
    rank, world = (dist.get_rank(), dist.get_world_size()) if running else (0, 1)
    mine = torch.arange(rank, len(source), world)
    dataset = source.dataset(embedder.preprocessing)

    def pixels(index: Int[Tensor, "b"]) -> Tensor:
        return dataset.batch(index)[0]

    parts = [embedder(images, batch).float().cpu() for images in ahead(pixels, _split(mine, batch), workers)]
    if world == 1:
        return torch.cat(parts)
    dim = torch.tensor([parts[0].shape[1] if parts else 0])
    dist.all_reduce(dim, dist.ReduceOp.MAX)
    own = torch.cat(parts) if parts else torch.empty(0, int(dim))
    return gather_features(own, source.labels[mine], index=mine)[0]


def _split(index: Int[Tensor, "n"], batch: int) -> list[Int[Tensor, "b"]]:
    return [part for part in index.split(batch) if len(part)]
