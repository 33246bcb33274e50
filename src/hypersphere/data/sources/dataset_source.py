"""A map-style torch dataset of (image, label) as a source."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from ..errors import DataError
from .source import Record, Source


class DatasetSource(Source):
    """The items (image, label) of a map-style dataset.

    Labels are those in ``dataset.labels`` or ``dataset.targets`` if there is one per item; otherwise every item is read once.
    ``dataset.classes`` names the labels if they are whole numbers and all have a name.

    Args:
        dataset: The dataset; its images are anything that a preprocessing accepts.
        name: The name of the source in messages; by default the name of the dataset's class.

    Raises:
        DataError: The dataset can only be iterated over, or its items are not (image, label).

    >>> items = torch.utils.data.TensorDataset(torch.rand(2, 1, 8, 8), torch.tensor([0, 1]))
    >>> source = DatasetSource(items, name="two pictures")
    >>> source.classes, source.records[1].name
    (('0', '1'), 'two pictures[1]')
    """

    description = "a torch dataset"
    asked_last = True

    def __init__(self, dataset: "Dataset[Any]", name: str | None = None):
        indexed = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
        if not indexed or isinstance(dataset, IterableDataset):
            raise DataError(
                f"a dataset must have a length and be indexed, got {type(dataset).__name__}; "
                "one that can only be iterated over is given to Loader itself"
            )
        self.items: Any = dataset
        title = name or type(dataset).__name__
        labels = _labels(self.items)
        names = getattr(dataset, "classes", None)
        if names is not None and all(isinstance(label, int) and 0 <= label < len(names) for label in labels):
            labels = [names[label] for label in labels]
        super().__init__(title, [Record(f"{title}[{i}]", str(label)) for i, label in enumerate(labels)])

    @classmethod
    def recognizes(cls, source: Any) -> bool:
        """Return whether ``source`` is an object that can be indexed, or a dataset."""
        return not isinstance(source, Path) and (hasattr(source, "__getitem__") or isinstance(source, Dataset))

    @classmethod
    def open(cls, source: Any) -> "DatasetSource":  # type: ignore[override]
        """Open a dataset; it has no options."""
        return cls(source)

    def fetch(self, index: int) -> Any:
        """Return the image of one item."""
        return self.items[index][0]


def _labels(dataset: Any) -> list[Any]:
    for attribute in ("labels", "targets"):
        given = getattr(dataset, attribute, None)
        if given is not None and len(given) == len(dataset):
            return [_plain(label) for label in (given.tolist() if isinstance(given, Tensor) else given)]
    found = []
    for i in range(len(dataset)):
        item = dataset[i]
        if not isinstance(item, tuple | list) or len(item) < 2:
            raise DataError(f"an item of the dataset must be (image, label), got {type(item).__name__}")
        found.append(_plain(item[1]))
    return found


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, torch.Tensor) or hasattr(label, "item") else label
