"""Rotated images as additional classes: a character rotated by a right angle is another character."""

from typing import Any

import torch

from .in_memory import InMemory


class Rotations(InMemory):
    """Every class of a dataset of square images four times: as it is, and turned counter-clockwise by 90°, 180° and 270°.

    With C classes and n images, class c turned by k right angles is class c + k·C, and image i is image i + k·n; the first n images and
    the first C classes are those of ``dataset``. Omniglot's 964 background characters become 3,856 in this way.

    >>> from hypersphere.data import Digits
    >>> turned = Rotations(Digits())
    >>> len(turned.classes), turned.classes[13], len(turned) == 4 * len(Digits())
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
