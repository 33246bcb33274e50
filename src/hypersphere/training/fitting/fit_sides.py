"""From a divided source to samples: decoded into memory, into a cache on disk, or batch by batch ahead of the step."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from ...data import InMemory, PicturePreprocessing, Source, cached
from ...recognition.baselines import first_identities
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
    preprocessing: PicturePreprocessing,
    *,
    memory: bool,
    cache: str | None,
    workers: int,
    watched: int,
    selection: Int[Tensor, "k"] | None = None,
) -> Sides:
    """Return the samples of both sides; ``cache`` names a folder for decoded pictures, ``memory`` keeps all in memory.

    Watched are identities of ``selection`` if there are any, else some of the measured ones.
    """
    sides: list[Any] = []
    chosen = [selection] if selection is not None and len(selection) else []
    for index in (division.train, division.measured, *chosen):
        dataset = source.part(index).dataset(preprocessing)
        decoded: Any = cached(dataset, cache, workers) if cache is not None else dataset
        sides.append(decoded.in_memory() if memory else decoded)
    few = first_identities(sides[-1].labels, watched)
    pictures, labels = sides[-1].batch(few)
    shown = InMemory(*_compact(pictures, labels, sides[-1].classes))
    return Sides(sides[0], sides[1], shown)


def sample_pictures(samples: Samples, count: int = LOOKED_AT) -> UInt8[Tensor, "k c h w"]:
    """Return up to ``count`` pictures, spread evenly over the samples, from which settings are chosen."""
    few = torch.linspace(0, len(samples) - 1, min(len(samples), count)).long()
    return torch.cat([samples.batch(part)[0] for part in few.split(256)])


def _compact(data: Tensor, labels: Tensor, classes: Sequence[str]) -> tuple[Tensor, Tensor, list[str]]:
    present, owner = labels.unique(return_inverse=True)
    return data, owner, [str(classes[i]) for i in present.tolist()]
