"""Features that were computed by several processes, brought together."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor

T = TypeVar("T")


def gather_features(
    features: Float[Tensor, "n d"], labels: Int[Tensor, "n"], *, index: Int[Tensor, "n"] | None = None
) -> tuple[Float[Tensor, "m d"], Int[Tensor, "m"]]:
    """Return the features and labels of all processes on every process, in the order of the ranks.

    Shards may have different lengths, also none. Without a process group, the process's own are returned. All processes
    must call it, with the same dimension, dtype and kind of device.

    Args:
        features: This process's features.
        labels: Their identities.
        index: The place of each sample in the whole set. If given, the result is in that order, and samples that a
            distributed sampler has repeated to even its shards out are kept once, so that figures do not depend on the
            number of processes.

    >>> features, labels = gather_features(torch.eye(3), torch.tensor([5, 6, 5]), index=torch.tensor([2, 0, 2]))
    >>> features, labels
    (tensor([[0., 1., 0.], [1., 0., 0.]]), tensor([6, 5]))
    """
    if labels.shape != features.shape[:1] or (index is not None and index.shape != labels.shape):
        raise ValueError(
            f"labels and index must be one for each of {len(features)} features, got {tuple(labels.shape)} and "
            f"{None if index is None else tuple(index.shape)}"
        )
    if index is not None and (index.is_floating_point() or index.is_complex()):
        raise ValueError(f"index must be integers, got {index.dtype}")
    features, labels = _gather(features.detach()), _gather(labels)
    if index is None:
        return features, labels
    index = _gather(index)
    order = index.argsort(stable=True)
    first = torch.ones_like(order, dtype=torch.bool)
    first[1:] = index[order].diff() != 0
    return features[order[first]], labels[order[first]]


def gather_answers(compute: Callable[[], T], group: dist.ProcessGroup | None = None) -> list[T]:
    """What ``compute()`` returns on each process of a group, by default of all, in the order of the ranks, on every process.

    Where it raises a ``ValueError`` or an ``OSError`` on one process, all of them raise it, so that nobody waits for an
    answer that never comes. Without a process group the process is alone.

    >>> gather_answers(lambda: 3)
    [3]
    """
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size(group) == 1:
        return [compute()]
    answer: T | Exception
    try:
        answer = compute()
    except (ValueError, OSError) as error:
        answer = error
    answers: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(answers, answer, group=group)
    for found in answers:
        if isinstance(found, Exception):
            raise found
    return answers


def _gather(rows: Tensor) -> Tensor:
    """The rows of all processes, padded to the longest shard on the way."""
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return rows
    length = torch.tensor([len(rows)], device=rows.device)
    lengths = [torch.zeros_like(length) for _ in range(dist.get_world_size())]
    dist.all_gather(lengths, length)
    longest = max(int(n) for n in lengths)
    padded = rows.new_zeros(longest, *rows.shape[1:])
    padded[: len(rows)] = rows
    parts = [torch.empty_like(padded) for _ in lengths]
    dist.all_gather(parts, padded)
    return torch.cat([part[: int(n)] for part, n in zip(parts, lengths, strict=True)])
