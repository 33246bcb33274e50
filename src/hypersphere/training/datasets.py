"""From the config's values to samples: what is trained on, what is measured on, and how it comes."""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from .. import data as sets
from ..data import Augmentation, Compose, CropFlip, InMemory, Normalize, OfClasses, Subset, identity_split
from ..data.streams import SPLIT, Stream
from .config import Data

# Which part of a dataset a reader gives for (training, the size of images, points): the readers' own arguments differ.
READERS: dict[str, Callable[[bool, Data], Any]] = {
    "Digits": lambda train, _: sets.Digits(train=train),
    "MNIST": lambda train, _: sets.MNIST(train=train),
    "FashionMNIST": lambda train, _: sets.FashionMNIST(train=train),
    "CIFAR10": lambda train, _: sets.CIFAR10(train=train),
    "CIFAR100": lambda train, _: sets.CIFAR100(train=train),
    "TinyImageNet": lambda train, _: sets.TinyImageNet(train=train),
    "Omniglot": lambda train, config: sets.Omniglot(background=train, size=config.size),
    "ModelNet40": lambda train, config: sets.ModelNet40(train=train, points=config.points),
    "ModelNet10Voxels": lambda train, config: sets.ModelNet10Voxels(train=train).clouds(config.points),
    "Shapes": lambda train, config: sets.Shapes(train, config.points),
}


def read(config: Data, train: bool) -> InMemory:
    """One part of the dataset the config names, in memory, resized and with as many channels as it asks for.

    The last few are kept: many short runs on one dataset read it once. What is returned is shared and must not be written to.
    """
    if config.name not in READERS:
        raise ValueError(f"data.name must be one of {', '.join(READERS)}, got {config.name!r}")
    source = Data(config.name, config.size, config.channels, classes=config.classes, points=config.points)
    return _read(source, train, tuple(map(str, sets.data_roots())))


@functools.lru_cache(maxsize=4)
def _read(config: Data, train: bool, roots: tuple[str, ...]) -> InMemory:
    """``roots`` is where the files are, so that another data root is another dataset."""
    dataset = READERS[config.name](train, config)
    whole = InMemory(dataset.data, dataset.labels, dataset.classes)
    if config.classes is not None:
        if not 2 <= config.classes <= len(whole.classes):
            raise ValueError(f"data.classes must lie in 2 … {len(whole.classes)}, got {config.classes}")
        whole = materialize(OfClasses(whole, range(config.classes)))
    return InMemory(shaped(whole.data, config), whole.labels, whole.classes)


def load(config: Data, by_class: bool = False) -> tuple[InMemory, InMemory]:
    """``(training, measured)``: the dataset's own two parts, or two parts of its training set when some of it is held out."""
    train, held = split(config, read(config, train=True), by_class)
    return train, some(config, read(config, train=False) if held is None else held)


def shaped(images: Tensor, config: Data) -> Tensor:
    """Images of the size and channels the config asks for; anything that is not an image stays as it is."""
    if images.ndim != 4:
        return images
    if config.channels is not None and images.shape[1] != config.channels:
        images = (
            images.expand(-1, 3, -1, -1)
            if config.channels == 3
            else images.float().mean(1, keepdim=True).round().to(images.dtype)
        )
    if config.size is not None and images.shape[-2:] != (config.size, config.size):
        parts = (
            torch.nn.functional.interpolate(part.float(), (config.size, config.size), mode="bilinear", antialias=True)
            for part in images.split(1024)
        )
        images = torch.cat([part.round().clamp(0, 255).to(torch.uint8) for part in parts])
    return images.contiguous()


def materialize(subset: Subset) -> InMemory:
    """The samples of a subset, copied."""
    return InMemory(*subset.batch(torch.arange(len(subset))), subset.classes)


def training_part(config: Data, dataset: InMemory) -> InMemory:
    """Fewer samples a class, imbalance, and rotated classes, in this order."""
    if config.per_class is not None:
        dataset = materialize(Subset(dataset, _first_of_each(dataset.labels, config.per_class)))
    if config.imbalance != "none":
        kind = sets.ImbalancedSingle if config.imbalance == "single" else sets.ImbalancedMultiple
        dataset = materialize(kind(dataset))
    return sets.Rotations(dataset) if config.rotations else dataset


def split(config: Data, train: InMemory, by_class: bool = False) -> tuple[InMemory, InMemory | None]:
    """``(training, validation)``: a random part of the samples, or of the classes, is held out. The same part for every seed of a run."""
    if not 0 <= config.validation < 1:
        raise ValueError(f"data.validation must lie in [0, 1), got {config.validation}")
    if config.validation == 0:
        return train, None
    if by_class:
        kept, held = identity_split(train.labels, [1 - config.validation, config.validation])
        parts = [OfClasses(train, train.labels[part].unique().tolist()) for part in (kept, held)]
        return materialize(parts[0]), materialize(parts[1])
    order = Stream(0, SPLIT).permutation(len(train))
    held_count = round(config.validation * len(train))
    return materialize(Subset(train, order[held_count:].sort().values)), materialize(
        Subset(train, order[:held_count].sort().values)
    )


def some(config: Data, dataset: InMemory) -> InMemory:
    """At most ``measured`` samples, the same for every seed of a run."""
    if config.measured is None or config.measured >= len(dataset):
        return dataset
    if config.measured < 1:
        raise ValueError(f"data.measured must be an integer ≥ 1 or None, got {config.measured}")
    return materialize(Subset(dataset, Stream(0, SPLIT, 1).permutation(len(dataset))[: config.measured].sort().values))


def normalization(config: Data, train: InMemory) -> Normalize | None:
    """What makes pixels numbers a network likes; statistics are those of the training part."""
    if config.normalize == "none" or train.data.ndim != 4:
        return None
    if config.normalize == "faces":
        return sets.FACES
    if config.normalize == "unit":
        return Normalize(0.0, 255.0)
    return Normalize.of(train, pixelwise=True, scale=128.0) if config.normalize == "pixel_mean" else Normalize.of(train)


def augmentation(config: Data, normalize: Normalize | None, size: int = 28) -> Augmentation | None:
    """The random part, then the normalization; ``size`` is that of the images."""
    steps: dict[str, list[Augmentation]] = {
        "none": [],
        "crop_flip": [CropFlip(pad=4)],
        "crop": [CropFlip(pad=2, horizontal=False)],
        "mirror": [CropFlip(pad=0)],
        "affine": [sets.Affine(math.radians(15), scale=0.15, shear=0.2, shift=size / 14, fill=config.fill)],
        "rotate_jitter": [
            sets.RotateJitter(up=1 if config.name == "ModelNet40" else 2)
        ],  # the voxels and solids stand on the third axis
    }
    chosen = [*steps[config.augment], *([] if normalize is None else [normalize])]
    return Compose(*chosen) if chosen else None


def prepared(images: Tensor, normalize: Normalize | None) -> Shaped[Tensor, "n ..."]:
    """Images as the network sees them in evaluation."""
    return images if normalize is None else normalize(images, images.new_empty(len(images), 0, dtype=torch.float64))


def _first_of_each(labels: Int[Tensor, "n"], count: int) -> Int[Tensor, "_"]:
    order = torch.argsort(labels, stable=True)
    starts = torch.cumsum(torch.bincount(labels), 0) - torch.bincount(labels)
    rank = torch.arange(len(labels)) - starts[labels[order]]
    return order[rank < count].sort().values
