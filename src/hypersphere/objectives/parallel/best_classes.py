"""The classes with the largest logits, for heads whose classes are on one or several processes."""

from typing import NamedTuple

import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor

from ...collectives import gather_parts
from .shards import Shards


class Best(NamedTuple):
    """The k classes with the largest logits of each sample, the largest first.

    >>> head = hs.ArcFace(2, 3)
    >>> head.weight.data = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.6, 0.8]])
    >>> head.topk(torch.tensor([[2.0, 0.0]]), 2).classes
    tensor([[1, 2]])
    """

    logits: Float[Tensor, "n k"]
    classes: Int[Tensor, "n k"]


def find_best_classes(logits: Float[Tensor, "n c"], k: int, first: int = 0) -> Best:
    """Return the k classes with the largest logits, or all classes if there are fewer.

    Args:
        logits: The logits of consecutive classes.
        k: Number of classes per sample.
        first: Index of the first class.

    >>> find_best_classes(torch.tensor([[1.0, 3.0, 2.0]]), k=2, first=10)
    Best(logits=tensor([[3., 2.]]), classes=tensor([[11, 12]]))
    """
    values, positions = logits.topk(min(k, logits.shape[1]), -1)
    return Best(values, positions + first)


def gather_best_classes(shards: Shards, logits: Float[Tensor, "n c"], k: int) -> Best:
    """Return the k classes with the largest logits among all classes, for the samples of this process.

    ``logits`` are those of the samples of all processes for the classes of this process. Every process must call it after
    ``shards.gather``. On two processes with one sample and two classes each:

    >>> shards = hs.objectives.parallel.create_shards(None, 4, torch.device("cpu"), average=True)  # doctest: +SKIP
    >>> _ = shards.gather(torch.ones(1, 2), torch.tensor([0]))  # doctest: +SKIP
    >>> logits = torch.tensor([[0.0, 2.0], [0.0, 2.0]]) + shards.rank  # doctest: +SKIP
    >>> gather_best_classes(shards, logits, k=2)  # doctest: +SKIP
    Best(logits=tensor([[3., 2.]]), classes=tensor([[3, 1]]))
    """
    local = find_best_classes(logits, k, shards.get_bounds().first)
    missing = (0, k - local.logits.shape[1])
    values = torch.nn.functional.pad(local.logits, missing, value=-torch.inf)
    classes = torch.nn.functional.pad(local.classes, missing, value=shards.num_classes)
    values, classes = (torch.cat(gather_parts(t, shards.group), -1) for t in (values, classes))
    # The values are ordered by class, so a stable sort ranks the first class of a tie highest.
    order = values.sort(dim=-1, descending=True, stable=True).indices[:, :k]
    return Best(shards.select_own_rows(values.gather(1, order)), shards.select_own_rows(classes.gather(1, order)))


def gather_class_logits(shards: Shards, logits: Float[Tensor, "n c"]) -> Float[Tensor, "_n all"]:
    """Return the logits of all classes for the samples of this process.

    ``logits`` are those of the samples of all processes for the classes of this process. Every process must call it after
    ``shards.gather``. On two processes with one sample and two classes each:

    >>> shards = hs.objectives.parallel.create_shards(None, 4, torch.device("cpu"), average=True)  # doctest: +SKIP
    >>> _ = shards.gather(torch.ones(1, 2), torch.tensor([0]))  # doctest: +SKIP
    >>> gather_class_logits(shards, torch.tensor([[0.0, 2.0], [0.0, 2.0]]) + shards.rank)  # doctest: +SKIP
    tensor([[0., 2., 1., 3.]])
    """
    rows = [part.contiguous() for part in logits.split(shards.counts)]
    samples = shards.counts[shards.rank]
    received = [logits.new_empty(samples, shards.get_bounds(rank).size) for rank in range(shards.processes)]
    requests = []
    for rank in range(shards.processes):
        if rank == shards.rank:
            received[rank].copy_(rows[rank])
            continue
        peer = dist.get_global_rank(shards.group, rank)
        if rows[rank].numel():
            requests.append(dist.P2POp(dist.isend, rows[rank], peer, shards.group))
        if received[rank].numel():
            requests.append(dist.P2POp(dist.irecv, received[rank], peer, shards.group))
    for work in dist.batch_isend_irecv(requests) if requests else []:
        work.wait()
    return torch.cat(received, -1)
