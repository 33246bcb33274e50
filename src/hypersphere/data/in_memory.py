"""The dataset that most dataset readers return: all samples in one tensor."""

from collections.abc import Sequence

import torch
from jaxtyping import Int, Shaped
from torch import Tensor
from torch.utils.data import Dataset


class InMemory(Dataset[tuple[Tensor, int]]):
    """A whole dataset as one tensor, usually uint8 (n, channels, height, width), and int64 labels 0 … len(classes) − 1.

    ``dataset[i]`` returns ``(data[i], label)``. ``dataset.batch(index)`` returns several samples at once; :class:`Loader`
    uses it.

    >>> images = InMemory(torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 1, 0]), ("cat", "dog"))
    >>> len(images), images[1][1], images.batch(torch.tensor([0, 2]))[0].shape
    (4, 1, torch.Size([2, 1, 2, 2]))
    """

    def __init__(self, data: Shaped[Tensor, "n ..."], labels: Int[Tensor, "n"], classes: Sequence[str]):
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(classes):
            raise ValueError(
                f"labels must lie in 0 … {len(classes) - 1}, got {int(labels.min())} … {int(labels.max())}"
            )
        self.data = data
        self.labels = labels.long()
        self.classes = tuple(classes)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.data[index], int(self.labels[index])

    def batch(self, index: Int[Tensor, "b"]) -> tuple[Tensor, Int[Tensor, "b"]]:
        """Return the samples at ``index`` and their labels."""
        index = index.to(self.data.device)
        return self.data[index], self.labels[index]

    def to(self, device: torch.device | str) -> "InMemory":
        """Return the same dataset on another device."""
        return InMemory(self.data.to(device), self.labels.to(device), self.classes)
