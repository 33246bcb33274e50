"""The best classes of a sample when the classes are on several processes."""

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
    """Return the k best of these classes, or all if there are fewer. ``first`` is the index of the first class.

    >>> find_best_classes(torch.tensor([[1.0, 3.0, 2.0]]), k=2, first=10)
    Best(logits=tensor([[3., 2.]]), classes=tensor([[11, 12]]))
    """
    values, places = logits.topk(min(k, logits.shape[1]), -1)
    return Best(values, places + first)


def gather_best_classes(shards: Shards, logits: Float[Tensor, "n c"], k: int) -> Best:
    """Return the k best of all classes for the samples of this process, from the logits of all samples for the classes here.

    Every process must call it, after ``shards.gather``. On two processes with one sample and two classes each:

    >>> shards = hs.objectives.parallel.create_shards(None, 4, torch.device("cpu"), average=True)  # doctest: +SKIP
    >>> _ = shards.gather(torch.ones(1, 2), torch.tensor([0]))  # doctest: +SKIP
    >>> logits = torch.tensor([[0.0, 2.0], [0.0, 2.0]]) + shards.rank  # doctest: +SKIP
    >>> gather_best_classes(shards, logits, k=2)  # doctest: +SKIP
    Best(logits=tensor([[3., 2.]]), classes=tensor([[3, 1]]))
    """
    here = find_best_classes(logits, k, shards.bounds().first)
    missing = (0, k - here.logits.shape[1])
    values = torch.nn.functional.pad(here.logits, missing, value=-torch.inf)
    classes = torch.nn.functional.pad(here.classes, missing, value=shards.num_classes)
    values, classes = (torch.cat(gather_parts(t, shards.group), -1) for t in (values, classes))
    # Processes follow each other in the order of their classes; a stable order makes the first class of a tie the best.
    order = values.sort(dim=-1, descending=True, stable=True).indices[:, :k]
    return Best(shards.mine(values.gather(1, order)), shards.mine(classes.gather(1, order)))


def gather_class_logits(shards: Shards, logits: Float[Tensor, "n c"]) -> Float[Tensor, "_n all"]:
    """Return the logits of all classes for the samples of this process, from those of all samples for the classes here.

    Every process must call it, after ``shards.gather``. On two processes with one sample and two classes each:

    >>> shards = hs.objectives.parallel.create_shards(None, 4, torch.device("cpu"), average=True)  # doctest: +SKIP
    >>> _ = shards.gather(torch.ones(1, 2), torch.tensor([0]))  # doctest: +SKIP
    >>> gather_class_logits(shards, torch.tensor([[0.0, 2.0], [0.0, 2.0]]) + shards.rank)  # doctest: +SKIP
    tensor([[0., 2., 1., 3.]])
    """
    rows = [part.contiguous() for part in logits.split(shards.counts)]
    mine = shards.counts[shards.rank]
    found = [logits.new_empty(mine, shards.bounds(rank).size) for rank in range(shards.processes)]
    requests = []
    for rank in range(shards.processes):
        if rank == shards.rank:
            found[rank].copy_(rows[rank])
            continue
        peer = dist.get_global_rank(shards.group, rank)
        if rows[rank].numel():
            requests.append(dist.P2POp(dist.isend, rows[rank], peer, shards.group))
        if found[rank].numel():
            requests.append(dist.P2POp(dist.irecv, found[rank], peer, shards.group))
    for work in dist.batch_isend_irecv(requests) if requests else []:
        work.wait()
    return torch.cat(found, -1)
