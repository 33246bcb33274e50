"""The images of the fine-tuning study. Classes are in a fixed random order: the first ones are old, each draw takes the next."""

import pathlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from hypersphere.data import TinyImageNet

WORK = pathlib.Path(tempfile.gettempdir()) / "hypersphere_finetune_study"
OLD, NEW, IMAGES = 50, 20, 100  # old classes, new classes per seed, training images per new class


@dataclass(frozen=True)
class Split:
    """The training, validation and test images of one draw of new classes."""

    train: tuple[Tensor, Tensor]
    held: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


def load_images() -> dict[str, tuple[Tensor, Tensor]]:
    """Return both parts of the data, which are decoded once and stored."""
    path = WORK / "images.pt"
    if not path.exists():
        WORK.mkdir(exist_ok=True)
        parts = {name: TinyImageNet(train=name == "train") for name in ("train", "val")}
        torch.save({name: (part.data, part.labels) for name, part in parts.items()}, path)
    return torch.load(path)


def select_images(part: tuple[Tensor, Tensor], classes: Tensor, first: int, last: int) -> tuple[Tensor, Tensor]:
    """Return images ``first`` to ``last`` of each class; labels are positions in ``classes``."""
    rows = [(part[1] == c).nonzero().squeeze(1)[first:last] for c in classes.tolist()]
    labels = torch.arange(len(classes)).repeat_interleave(torch.tensor([len(r) for r in rows]))
    return part[0][torch.cat(rows)], labels


def shuffle_classes() -> Tensor:
    """Return all classes in a fixed random order."""
    return torch.randperm(200, generator=torch.Generator().manual_seed(18))


def make_split(data: dict[str, tuple[Tensor, Tensor]], draw: int) -> Split:
    """Return the images of the new classes of a draw."""
    classes = shuffle_classes()[OLD + draw * NEW : OLD + (draw + 1) * NEW]
    train, held = select_images(data["train"], classes, 0, IMAGES), select_images(data["train"], classes, 400, 500)
    return Split(train, held, select_images(data["val"], classes, 0, 50))


def scale_pixels(batch: Tensor) -> Tensor:
    """Center and scale pixels."""
    return (batch.float() - 120) / 70


def draw_batches(data: tuple[Tensor, Tensor], size: int, steps: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches of random images, half of them mirrored."""
    generator = torch.Generator().manual_seed(seed)
    queue = torch.empty(0, dtype=torch.long)
    for _ in range(steps):
        if len(queue) < size:
            queue = torch.cat([queue, torch.randperm(len(data[1]), generator=generator)])
        rows, queue = queue[:size], queue[size:]
        mirrored = torch.rand(size, 1, 1, 1, generator=generator) < 0.5
        yield scale_pixels(torch.where(mirrored, data[0][rows].flip(-1), data[0][rows])), data[1][rows]
