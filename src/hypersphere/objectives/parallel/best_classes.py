"""The best classes of a sample when the classes are on several processes."""

from typing import NamedTuple

import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor

from .shards import Shards


class Best(NamedTuple):
    """The k classes with the largest logits of each sample, the largest first."""

    logits: Float[Tensor, "n k"]
    classes: Int[Tensor, "n k"]


def best_of(logits: Float[Tensor, "n c"], k: int, first: int = 0) -> Best:
    """The k best among these classes, fewer if there are fewer; ``first`` is the number of the first of them."""
    values, places = logits.topk(min(k, logits.shape[1]), -1)
    return Best(values, places + first)


def best_over(shards: Shards, logits: Float[Tensor, "n c"], k: int) -> Best:
    """The k best of all processes' classes for this process's samples, from the logits of all samples here."""
    here = best_of(logits, k, shards.bounds().first)
    missing = (0, k - here.logits.shape[1])
    values = torch.nn.functional.pad(here.logits, missing, value=-torch.inf)
    classes = torch.nn.functional.pad(here.classes, missing, value=shards.num_classes)
    values, classes = (torch.cat(shards._parts(t), -1) for t in (values, classes))
    # Processes follow each other in the order of their classes; a stable order makes the first class of a tie the best.
    order = values.sort(dim=-1, descending=True, stable=True).indices[:, :k]
    return Best(shards.mine(values.gather(1, order)), shards.mine(classes.gather(1, order)))


def logits_over(shards: Shards, logits: Float[Tensor, "n c"]) -> Float[Tensor, "_n all"]:
    """All classes' logits of this process's samples, from those of all samples for the classes here."""
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
