"""Rotated images as additional classes."""

from typing import Any

import torch

from .in_memory import InMemory


class Rotations(InMemory):
    """A dataset of square images with four times as many classes: the classes, and their rotations by 90°, 180° and 270°.

    Rotations are counter-clockwise. Of C classes and n images, class c rotated by k right angles becomes class c + k·C, and image i
    becomes image i + k·n. The first n images and the first C classes are those of ``dataset``. Omniglot's 964 background characters
    become 3,856 classes: a rotated character counts as another character.

    >>> from hypersphere.data import Digits
    >>> rotated = Rotations(Digits())
    >>> len(rotated.classes), rotated.classes[13], len(rotated) == 4 * len(Digits())
    (40, '3 at 90°', True)
    """

    def __init__(self, dataset: Any):
        images, labels = dataset.batch(torch.arange(len(dataset)))
        if images.ndim != 4 or images.shape[2] != images.shape[3]:
            raise ValueError(f"dataset must hold square images (n, channels, size, size), got {tuple(images.shape)}")
        count, names = len(dataset.classes), tuple(dataset.classes)
        super().__init__(
            torch.cat([images.rot90(k, (2, 3)) for k in range(4)]),
            torch.cat([labels + k * count for k in range(4)]),
            names + tuple(f"{name} at {90 * k}°" for k in (1, 2, 3) for name in names),
        )
