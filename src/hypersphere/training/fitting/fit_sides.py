"""From a divided source to samples: decoded into memory, into a cache on disk, or batch by batch ahead of the step."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from ...data import InMemory, Preprocessing, Source, cached
from ...data.streams import SPLIT, Stream
from ..datasets import Samples
from .division import Division

ROOM = 2 << 30  # bytes of decoded pictures that are kept in memory unless it is said otherwise
LOOKED_AT = 2048  # pictures that choices and statistics are taken from


class Sides(NamedTuple):
    """The samples that are trained on, those that are measured at the end, and the few that are watched meanwhile."""

    train: Samples
    measured: Samples
    watched: Samples


def samples(
    source: Source,
    division: Division,
    preprocessing: Preprocessing,
    *,
    memory: bool,
    cache: str | None,
    workers: int,
    watched: int,
) -> Sides:
    """Return the samples of both sides; ``cache`` names a folder for decoded pictures, ``memory`` keeps all in memory."""
    sides: list[Any] = []
    for index in (division.train, division.measured):
        dataset = source.part(index).dataset(preprocessing)
        decoded: Any = cached(dataset, cache, workers) if cache is not None else dataset
        sides.append(decoded.in_memory() if memory else decoded)
    few = first_identities(sides[1].labels, watched)
    pictures, labels = sides[1].batch(few)
    shown = InMemory(*_compact(pictures, labels, sides[1].classes))
    return Sides(sides[0], sides[1], shown)


def first_identities(labels: Int[Tensor, "n"], count: int) -> Int[Tensor, "k"]:
    """Return the positions of whole identities, in a random order that is always the same, up to ``count`` pictures.

    At least two identities are taken; of one that is too large for the rest, as many pictures as there is room for.

    >>> first_identities(torch.arange(6).repeat_interleave(4), 8).tolist() == sorted(
    ...     first_identities(torch.arange(6).repeat_interleave(4), 8).tolist())
    True
    """
    if len(labels) <= count:
        return torch.arange(len(labels))
    each = max(2, count // 2)
    taken: list[Tensor] = []
    names = labels.unique()
    for i, name in enumerate(names[Stream(0, SPLIT, 2).permutation(len(names))].tolist()):
        mine = torch.nonzero(labels == name).flatten()[:each]
        if i >= 2 and sum(map(len, taken)) + len(mine) > count:
            break
        taken.append(mine)
    return torch.cat(taken).sort().values


def looked_at(source: Source, index: Int[Tensor, "n"], preprocessing: Preprocessing) -> UInt8[Tensor, "k c h w"]:
    """Return the pictures of up to 2,048 positions, spread evenly, from which choices and statistics are taken."""
    few = index[torch.linspace(0, len(index) - 1, min(len(index), LOOKED_AT)).long()]
    return torch.stack([source.pixels(i, preprocessing) for i in few.tolist()])


def _compact(data: Tensor, labels: Tensor, classes: Sequence[str]) -> tuple[Tensor, Tensor, list[str]]:
    present, owner = labels.unique(return_inverse=True)
    return data, owner, [str(classes[i]) for i in present.tolist()]
