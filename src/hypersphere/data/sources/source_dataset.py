"""A source as a dataset: decoded item by item, cropped and resized the way the network's own preprocessing says."""

import hashlib
import json

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

    >>> source = hs.data.open_source((torch.zeros(4, 9, 9), ["ann", "ann", "bob", "bob"]))
    >>> dataset = SourceDataset(source, Preprocessing(size=(6, 6), channels=3))
    >>> picture, label = dataset[2]
    >>> len(dataset), picture.shape, dataset.classes[label]
    (4, torch.Size([3, 6, 6]), 'bob')
    """

    def __init__(self, source: Source, preprocessing: Preprocessing):
        self.source, self.preprocessing = source, preprocessing
        self.records, self.classes = source.records, source.classes
        self.labels: Int[Tensor, "n"] = source.labels

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> tuple[UInt8[Tensor, "c h w"], int]:
        return self.source.pixels(index, self.preprocessing), int(self.labels[index])

    def batch(self, index: Int[Tensor, "b"]) -> tuple[UInt8[Tensor, "b c h w"], Int[Tensor, "b"]]:
        """The pictures at ``index`` and their class numbers, decoded one after the other."""
        data = torch.empty(len(index), self.preprocessing.channels, *self.preprocessing.size, dtype=torch.uint8)
        for row, i in enumerate(index.tolist()):
            data[row] = self.source.pixels(i, self.preprocessing)
        return data, self.labels[index]

    def digest(self) -> str:
        """SHA-256 of all that decides the pictures: the files, their boxes and labels, and the preprocessing but its scaling."""
        wanted = ("size", "channels", "crop", "resize", "interpolation", "fill")
        fields = {name: value for name, value in self.preprocessing.to_dict().items() if name in wanted}
        return hashlib.sha256(json.dumps([fields, self.source.digest()]).encode()).hexdigest()

    def in_memory(self) -> InMemory:
        """Everything decoded into one tensor."""
        return InMemory(*self.batch(torch.arange(len(self))), self.classes)
