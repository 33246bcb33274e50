"""Features of every picture of a source."""

import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor

from ..data.prefetch import ahead
from ..data.sources import Source
from ..evaluation.gathering import gather_answers
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

    >>> embedder = Embedder(torch.nn.Flatten(), hs.data.Preprocessing(size=(4, 4), channels=1))
    >>> images = torch.zeros(6, 8, 8, dtype=torch.uint8).numpy()
    >>> source = hs.data.open_source((images, ["ann", "ann", "ann", "bob", "bob", "bob"]))
    >>> source_features(embedder, source).shape
    torch.Size([6, 16])
    """
    if batch < 1:
        raise ValueError(f"batch must be an integer ≥ 1, got {batch!r}")
    running = dist.is_available() and dist.is_initialized()
    rank, world = (dist.get_rank(), dist.get_world_size()) if running else (0, 1)
    mine = torch.arange(rank, len(source), world)
    dataset = source.dataset(embedder.preprocessing)

    def pixels(index: Int[Tensor, "b"]) -> Tensor:
        return dataset.batch(index)[0]

    def compute() -> list[Tensor]:
        return [embedder(images, batch).float().cpu() for images in ahead(pixels, _split(mine, batch), workers)]

    shares = [torch.cat(parts) for parts in gather_answers(compute) if parts]
    whole = shares[0].new_empty(len(source), shares[0].shape[1])
    for first, share in enumerate(shares):  # only the last ones can be without a picture
        whole[first::world] = share
    return whole


def _split(index: Int[Tensor, "n"], batch: int) -> list[Int[Tensor, "b"]]:
    return [part for part in index.split(batch) if len(part)]
