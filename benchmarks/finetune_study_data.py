"""The images of the study of fine-tuning: classes in a fixed random order, the first old, each draw the next ones."""

import pathlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from hypersphere.data import TinyImageNet

WORK = pathlib.Path(tempfile.gettempdir()) / "hypersphere_finetune_study"
OLD, NEW, IMAGES = 50, 20, 100  # old classes, new classes a seed, training images of a new class


@dataclass(frozen=True)
class Split:
    """The images of one draw: to tune on, to choose on, to measure, and the old classes' to measure."""

    train: tuple[Tensor, Tensor]
    held: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


def images() -> dict[str, tuple[Tensor, Tensor]]:
    """Both parts of the data, decoded once and kept."""
    path = WORK / "images.pt"
    if not path.exists():
        WORK.mkdir(exist_ok=True)
        parts = {name: TinyImageNet(train=name == "train") for name in ("train", "val")}
        torch.save({name: (part.data, part.labels) for name, part in parts.items()}, path)
    return torch.load(path)


def chosen(part: tuple[Tensor, Tensor], classes: Tensor, first: int, last: int) -> tuple[Tensor, Tensor]:
    """Images ``first`` to ``last`` of each of these classes, labeled by their place in the list."""
    rows = [(part[1] == c).nonzero().squeeze(1)[first:last] for c in classes.tolist()]
    labels = torch.arange(len(classes)).repeat_interleave(torch.tensor([len(r) for r in rows]))
    return part[0][torch.cat(rows)], labels


def order() -> Tensor:
    """The classes in a fixed random order: the first are old, each draw takes the next ones."""
    return torch.randperm(200, generator=torch.Generator().manual_seed(18))


def split(data: dict[str, tuple[Tensor, Tensor]], draw: int) -> Split:
    """The new classes of a draw."""
    classes = order()[OLD + draw * NEW : OLD + (draw + 1) * NEW]
    train, held = chosen(data["train"], classes, 0, IMAGES), chosen(data["train"], classes, 400, 500)
    return Split(train, held, chosen(data["val"], classes, 0, 50))


def prepared(batch: Tensor) -> Tensor:
    """Pixels around 0."""
    return (batch.float() - 120) / 70


def batches(data: tuple[Tensor, Tensor], size: int, steps: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Random images, each mirrored or not."""
    generator = torch.Generator().manual_seed(seed)
    queue = torch.empty(0, dtype=torch.long)
    for _ in range(steps):
        if len(queue) < size:
            queue = torch.cat([queue, torch.randperm(len(data[1]), generator=generator)])
        rows, queue = queue[:size], queue[size:]
        mirrored = torch.rand(size, 1, 1, 1, generator=generator) < 0.5
        yield prepared(torch.where(mirrored, data[0][rows].flip(-1), data[0][rows])), data[1][rows]
