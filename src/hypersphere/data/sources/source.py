"""What a source of pictures is: records, and the image of each, read when asked for."""

import functools
import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from ..errors import CorruptDataError, DataError
from ..images import decode
from ..preprocessing import Box, Preprocessing

if TYPE_CHECKING:
    from .source_dataset import SourceDataset


@dataclass(frozen=True)
class Record:
    """One picture of a source.

    ``name`` is its path, or its place in an archive or array, as errors and reports say it; ``label`` is who or what it shows.
    ``split``, ``is_query``, ``is_gallery`` and ``category`` are those of a table and None where nothing is said; ``box`` =
    (x_1, y_1, x_2, y_2) is the part of the image that counts, in pixels.

    >>> record = hs.data.open_source((torch.zeros(2, 8, 8), ["ann", "bob"])).records[1]
    >>> record.name, record.label, record.split
    ('the arrays[1]', 'bob', None)
    """

    name: str
    label: str
    split: str | None = None
    is_query: bool | None = None
    is_gallery: bool | None = None
    category: str | None = None
    box: Box | None = None


class Source(ABC):
    """Labelled pictures, wherever they lie; a kind of source says what its :class:`Record` s are and fetches one image.

    The ``classes`` are the different labels in sorted order (by value if all are whole numbers), and ``labels`` (n,) their
    numbers. Nothing is decoded before it is asked for.

    >>> class Greys(Source):
    ...     def fetch(self, index):
    ...         return torch.full((1, 8, 8), 40 * index, dtype=torch.uint8)
    >>> source = Greys("greys", [Record("dark", "night"), Record("light", "day")])
    >>> source.classes, source.labels.tolist(), source.pixels(1, Preprocessing(size=(1, 1), channels=1)).tolist()
    (('day', 'night'), [1, 0], [[[40]]])
    """

    def __init__(self, name: str, records: Sequence[Record], classes: Sequence[str] | None = None):
        self.name, self.records = name, tuple(records)
        if not self.records:
            raise DataError(f"{name} holds no picture")
        found = {record.label for record in self.records}
        self.classes = tuple(sorted(found, key=_by_value(found)) if classes is None else classes)
        if not found <= set(self.classes):
            unknown = sorted(found - set(self.classes))[0]
            raise ValueError(f"classes must hold every label of {name}, but {unknown!r} is not among them")

    @abstractmethod
    def fetch(self, index: int) -> Any:
        """The image of record ``index`` as bytes of a file, or as anything that :class:`Preprocessing` takes."""

    def __len__(self) -> int:
        return len(self.records)

    @functools.cached_property
    def labels(self) -> Int[Tensor, "n"]:
        """The class number of each record."""
        number = {name: i for i, name in enumerate(self.classes)}
        return torch.tensor([number[record.label] for record in self.records])

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits that records are in, sorted."""
        return tuple(sorted({record.split for record in self.records if record.split is not None}))

    def image(self, index: int) -> Any:
        """The image of a record: an upright 8-bit PIL image, an array or a tensor, as :class:`Preprocessing` takes it."""
        content = self.fetch(index)
        return decode(content, self.records[index].name, None) if isinstance(content, bytes) else content

    def pixels(self, index: int, preprocessing: Preprocessing) -> UInt8[Tensor, "c h w"]:
        """The 8-bit picture of a record: its box, cropped and resized by ``preprocessing``."""
        try:
            return preprocessing.pixels(self.image(index), self.records[index].box)
        except DataError:
            raise
        except ValueError as error:  # a box outside the image, a crop larger than it
            raise CorruptDataError(f"{self.records[index].name}: {error}") from error

    def part(
        self, index: Int[Tensor, "k"] | None = None, split: str | None = None, classes: Sequence[str] | None = None
    ) -> "Source":
        """The records at ``index``, or those of ``split``. Their classes are the ones that occur among them, unless given."""
        if split is not None:
            if split not in self.splits:
                raise ValueError(
                    f"split must be one of {', '.join(self.splits) or 'none'} of {self.name}, got {split!r}"
                )
            index = torch.tensor([i for i, record in enumerate(self.records) if record.split == split])
        if index is None:
            index = torch.arange(len(self))
        return Part(self, index.tolist(), classes)

    def dataset(self, preprocessing: Preprocessing) -> "SourceDataset":
        """The map-style dataset of (8-bit picture, class number), decoded item by item."""
        from .source_dataset import SourceDataset

        return SourceDataset(self, preprocessing)

    def files(self) -> Sequence[str]:
        """The files that hold the images; those that are not known by their files have none."""
        return ()

    def digest(self) -> str:
        """SHA-256 of the records and of each file's path, size and time of change, by which a cache knows the source.

        Raises:
            ValueError: if the images do not come from files, so that nothing says whether they changed.
        """
        files = self.files()
        if not files:
            raise ValueError(f"{self.name} does not come from files, so it has no digest")
        found = hashlib.sha256()
        for name in sorted(set(files)):
            state = os.stat(name)
            found.update(f"{os.path.abspath(name)}\0{state.st_size}\0{state.st_mtime_ns}\n".encode())
        for record in self.records:
            found.update(f"{record.name}\0{record.label}\0{record.box}\n".encode())
        return found.hexdigest()

    def readable(self) -> tuple["Source", dict[str, str]]:
        """The records whose images decode, each tried once, and of the others the name and the reason."""
        kept, reasons = [], {}
        for i, record in enumerate(self.records):
            try:
                self.image(i)
                kept.append(i)
            except DataError as error:  # noqa: PERF203  (each image on its own)
                reasons[record.name] = str(error)
        if not kept:
            raise CorruptDataError(f"none of the {len(self)} pictures of {self.name} can be read: {_first(reasons)}")
        return (Part(self, kept, None) if reasons else self), reasons


class Part(Source):
    """Some records of another source."""

    def __init__(self, whole: Source, index: Sequence[int], classes: Sequence[str] | None):
        super().__init__(whole.name, [whole.records[i] for i in index], classes)
        self.whole, self.index = whole, tuple(index)

    def fetch(self, index: int) -> Any:
        """The image in the whole source."""
        return self.whole.fetch(self.index[index])

    def digest(self) -> str:
        """SHA-256 of the whole source's digest and of which records these are."""
        return hashlib.sha256(f"{self.whole.digest()}{self.index}".encode()).hexdigest()


def _by_value(labels: set[str]) -> Any:
    """Sort key: names as names, whole numbers as numbers."""
    whole = all(label.removeprefix("-").isdecimal() for label in labels)
    return (lambda label: (int(label), label)) if whole else None


def _first(reasons: dict[str, str]) -> str:
    return next(iter(reasons.values()))
