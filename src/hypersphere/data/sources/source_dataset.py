"""A source as a dataset: decoded item by item, cropped and resized the way the network's own preprocessing says."""

import torch
from jaxtyping import Int, UInt8
from torch import Tensor
from torch.utils.data import Dataset

from ..in_memory import InMemory
from ..preprocessing import Preprocessing
from .source import Source


class SourceDataset(Dataset[tuple[Tensor, int]]):
    """Map-style: ``dataset[i]`` is (uint8 picture (channels, height, width), class number), decoded when asked for.

    ``labels`` (n,), ``classes`` and ``records`` are the source's. :class:`Loader` decodes ahead in workers; :meth:`in_memory`
    decodes everything at once, for sets that fit.
    """

    def __init__(self, source: Source, preprocessing: Preprocessing):
        self.source, self.preprocessing = source, preprocessing
        self.records, self.classes = source.records, source.classes
        self.labels: Int[Tensor, "n"] = source.labels

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> tuple[UInt8[Tensor, "c h w"], int]:
        return self.source.pixels(index, self.preprocessing), int(self.labels[index])

    def in_memory(self) -> InMemory:
        """Everything decoded into one tensor."""
        data = torch.empty(len(self), self.preprocessing.channels, *self.preprocessing.size, dtype=torch.uint8)
        for i in range(len(self)):
            data[i] = self[i][0]
        return InMemory(data, self.labels, self.classes)
