"""The interface of all sources: labeled records, whose samples are read on demand, and the dataset of a source."""

import contextlib
import functools
import hashlib
import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Int, Shaped
from torch import Tensor
from torch.utils.data import Dataset

from ..errors import CorruptDataError, DataError, UnusableSampleError
from ..images import read_bytes
from ..in_memory import InMemory
from ..media import SAMPLE_ENDINGS, decode_sample
from ..preprocessing import Prepared, Preprocessing, Region

OnError = Literal["raise", "skip", "skip_empty"]
SKIP_ADVICE = "remove it, or leave such samples out with on_error=skip (--skip-errors)"


@dataclass(frozen=True)
class Record:
    """One sample of a source.

    Args:
        name: The path, or the position in an archive or array. Errors and reports show it.
        label: The identity or class.
        split: The split that the sample belongs to, if the source has splits.
        is_query: Whether a retrieval protocol uses the sample as a query.
        is_gallery: Whether a retrieval protocol uses the sample as a gallery entry.
        category: A further group, such as a domain.
        box: The part of the sample to use: (x_1, y_1, x_2, y_2) in pixels of a picture, (start, end) in seconds of a recording.

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
    box: Region | None = None


class Source(ABC):
    """Labeled samples, independent of where they are stored.

    A format is one subclass. It creates its :class:`Record` objects and implements :meth:`fetch`; its :meth:`recognizes`
    returns whether it can open an object. :func:`open_source` tries all formats that ``hypersphere.data.sources`` exports,
    and those that other installed packages register in the entry-point group ``hypersphere.sources``.

    ``classes`` holds the distinct labels in sorted order (by value if all are whole numbers). ``labels`` (n,) holds the
    class number of each record. Samples are decoded on demand.

    Args:
        name: The name of the source in messages.
        records: The samples, at least one.
        classes: The class names in order; by default the labels of the records.

    Raises:
        DataError: There is no record.
        ValueError: ``classes`` lacks the label of a record.

    >>> class Grays(Source):
    ...     def fetch(self, index):
    ...         return torch.full((1, 8, 8), 40 * index, dtype=torch.uint8)
    >>> source = Grays("grays", [Record("dark", "night"), Record("light", "day")])
    >>> source.classes, source.labels.tolist(), source.load(1, hs.data.PicturePreprocessing(size=(1, 1), channels=1)).tolist()
    (('day', 'night'), [1, 0], [[[40]]])
    """

    description: ClassVar[str] = "a source"
    """The format in a few words, for messages."""

    endings: ClassVar[tuple[str, ...]] = ()
    """Endings of the files that hold the format, in lower case."""

    fills_folders: ClassVar[bool] = False
    """Whether a folder that contains only such files is opened as one source."""

    is_general: ClassVar[bool] = False
    """Whether :meth:`recognizes` also accepts sources of more specific formats, so that all other formats are tried first."""

    missing: Sequence[str] = ()
    """Names of files that the source lists but that do not exist. They were left out when the source was opened."""

    advice: str = ""
    """What to do if the source has too few identities, appended to the error message."""

    def __init__(self, name: str, records: Sequence[Record], classes: Sequence[str] | None = None):
        self.name, self.records = name, tuple(records)
        if not self.records:
            raise DataError(f"{name} holds no sample")
        found = {record.label for record in self.records}
        self.classes = tuple(sorted(found, key=_get_label_key(found)) if classes is None else classes)
        if not found <= set(self.classes):
            unknown = sorted(found - set(self.classes))[0]
            raise ValueError(f"classes must hold every label of {name}, but {unknown!r} is not among them")

    @classmethod
    def recognizes(cls, source: Any) -> bool:
        """Return whether this format can open ``source``, a ``Path`` or any other object; by default by its ending."""
        if not isinstance(source, Path):
            return False
        if source.is_dir():
            return cls.fills_folders and any(holds_only_files(source, ending) for ending in cls.endings)
        return source.suffix.lower() in cls.endings

    @classmethod
    def open(cls, source: Any, **options: Any) -> "Source":
        """Open a source that :meth:`recognizes` accepts.

        An override lists its options in its signature. ``open_source`` passes its options on and refuses options that are
        not in the signature.
        """
        return cls(source, **options)

    @abstractmethod
    def fetch(self, index: int) -> Any:
        """Return the sample of record ``index`` as the bytes of a file or as any object that a preprocessing accepts."""

    def __len__(self) -> int:
        return len(self.records)

    @functools.cached_property
    def labels(self) -> Int[Tensor, "n"]:
        """Class number of each record."""
        number = {name: i for i, name in enumerate(self.classes)}
        return torch.tensor([number[record.label] for record in self.records])

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits, sorted."""
        return tuple(sorted({record.split for record in self.records if record.split is not None}))

    def sample(self, index: int) -> Any:
        """Return the decoded sample of a record: an upright 8-bit PIL picture, a ``Recording``, an array or a tensor."""
        content = self.fetch(index)
        return decode_sample(content, self.records[index].name) if isinstance(content, bytes) else content

    def load(self, index: int, preprocessing: Preprocessing) -> Tensor:
        """Return the sample of a record as ``preprocessing`` stores it."""
        with self._name_record_in_errors(index):
            return preprocessing.load(self.sample(index), self.records[index].box)

    def load_all(self, index: int, preprocessing: Preprocessing, choose: str = "all") -> list[Prepared]:
        """Return everything that the preprocessing finds in a sample, such as the faces in a photograph that ``choose`` selects.

        Raises:
            UnusableSampleError: Nothing was found. The message names the record.
        """
        record = self.records[index]
        with self._name_record_in_errors(index):
            found = preprocessing.load_all(self.sample(index), record.box, choose)
            if not found:
                raise UnusableSampleError(f"no {preprocessing.content} was found")
            return found

    def load_usable(
        self, index: int, preprocessing: Preprocessing, choose: str = "all", on_error: OnError = "raise"
    ) -> list[Prepared] | str:
        """Return the result of :meth:`load_all`, or the reason why the sample is left out.

        All commands use this method to leave out samples.

        Args:
            index: Position of the record.
            preprocessing: Prepares the sample.
            choose: Which of several results to return.
            on_error: ``"raise"`` leaves nothing out. ``"skip_empty"`` leaves out samples in which nothing is found, such as
                photographs without a face. ``"skip"`` also leaves out samples that cannot be read.

        Raises:
            DataError: The sample cannot be used and is not left out. The message names the record.
        """
        try:
            return self.load_all(index, preprocessing, choose)
        except DataError as error:
            if on_error == "raise" or (on_error == "skip_empty" and not isinstance(error, UnusableSampleError)):
                raise type(error)(f"{error}; {SKIP_ADVICE}") from error
            return str(error).removeprefix(f"{self.records[index].name}: ")

    @contextlib.contextmanager
    def _name_record_in_errors(self, index: int) -> Iterator[None]:
        """Add the name of the record to errors of its preprocessing."""
        try:
            yield
        except UnusableSampleError as error:
            raise type(error)(f"{self.records[index].name}: {error}") from error
        except DataError:
            raise
        except ValueError as error:  # a box outside the picture, a silent recording
            raise CorruptDataError(f"{self.records[index].name}: {error}") from error

    def part(
        self, index: Int[Tensor, "k"] | None = None, split: str | None = None, classes: Sequence[str] | None = None
    ) -> "Source":
        """Return some of the records as a source.

        Args:
            index: Positions of the records; all by default.
            split: Name of a split, instead of ``index``.
            classes: The class names in order; by default the labels that occur in the part.

        Raises:
            ValueError: There is no such split.
        """
        if split is not None:
            if split not in self.splits:
                raise ValueError(
                    f"split must be one of {', '.join(self.splits) or 'none'} of {self.name}, got {split!r}"
                )
            index = torch.tensor([i for i, record in enumerate(self.records) if record.split == split])
        if index is None:
            index = torch.arange(len(self))
        return _Part(self, index.tolist(), classes)

    def dataset(self, preprocessing: Preprocessing) -> "SourceDataset":
        """Return the map-style dataset of (stored sample, class number), decoded item by item."""
        return SourceDataset(self, preprocessing)

    def find_unused(self) -> dict[str, tuple[str, ...]]:
        """Return unused files and folders by reason, for example files of other formats."""
        return {}

    def files(self) -> Sequence[str]:
        """Return the files that hold the samples, or nothing if the samples are not stored in files."""
        return ()

    def digest(self) -> str:
        """Return a SHA-256 of the records and of each file's path, size and modification time, the key of caches.

        Raises:
            ValueError: The samples are not stored in files, so changes cannot be detected.
        """
        files = self.files()
        if not files:
            raise ValueError(f"{self.name} does not come from files, so it has no digest")
        digest = hashlib.sha256()
        for name in sorted(set(files)):
            status = os.stat(name)
            digest.update(f"{os.path.abspath(name)}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
        for record in self.records:
            digest.update(f"{record.name}\0{record.label}\0{record.box}\n".encode())
        return digest.hexdigest()

    def drop_unreadable(self) -> tuple["Source", dict[str, str]]:
        """Decode every sample once; return the readable records as a source, and name → reason of the others.

        Raises:
            CorruptDataError: No sample can be read.
        """
        readable, reasons = [], {}
        for i, record in enumerate(self.records):
            try:
                self.sample(i)
                readable.append(i)
            except DataError as error:  # noqa: PERF203  (continue after each unreadable sample)
                reasons[record.name] = str(error)
        if not readable:
            raise CorruptDataError(
                f"none of the {len(self)} samples of {self.name} can be read: {next(iter(reasons.values()))}"
            )
        return (_Part(self, readable, None) if reasons else self), reasons


def summarize_unused(unused: Mapping[str, Sequence[str]]) -> str:
    """Return one line with the number of unused files per reason, from :meth:`Source.find_unused`.

    >>> summarize_unused({"files with the ending .mp4": ("a.mp4", "b.mp4"), "empty folders": ("eve",)})
    'files with the ending .mp4 (2), empty folders (1)'
    """
    return ", ".join(f"{why} ({len(names)})" for why, names in unused.items())


def list_skipped(skipped: Mapping[str, str]) -> list[str]:
    """Return one line for each sample that was left out, with its name and the reason.

    >>> list_skipped({"wall.jpg": "no face was found"})
    ['skipped wall.jpg: no face was found']
    """
    return [f"skipped {name}: {reason.removeprefix(f'{name}: ')}" for name, reason in skipped.items()]


def list_missing(source: Source) -> dict[str, str]:
    """Return the files that a source lists but that do not exist, with the reason for :func:`list_skipped`."""
    return dict.fromkeys(source.missing, "there is no such file")


class PathSource(Source):
    """A source whose records are files: the name of a record is the path of its file."""

    def fetch(self, index: int) -> bytes:
        """Return the content of the file."""
        return read_bytes(self.records[index].name)

    def files(self) -> list[str]:
        """Return one file per record."""
        return [record.name for record in self.records]


class _Part(Source):
    """Some records of another source."""

    def __init__(self, whole: Source, index: Sequence[int], classes: Sequence[str] | None):
        super().__init__(whole.name, [whole.records[i] for i in index], classes)
        self.whole, self.index = whole, tuple(index)

    def fetch(self, index: int) -> Any:
        """Return the sample of the whole source."""
        return self.whole.fetch(self.index[index])

    def digest(self) -> str:
        """Return a SHA-256 of the whole source's digest and of the positions of these records."""
        return hashlib.sha256(f"{self.whole.digest()}{self.index}".encode()).hexdigest()


class SourceDataset(Dataset[tuple[Tensor, int]]):
    """Map-style dataset of a source: ``dataset[i]`` is (sample as the preprocessing stores it, class number).

    ``labels`` (n,), ``classes`` and ``records`` are those of the source. Samples are decoded on demand. :class:`Loader`
    decodes them in advance in workers, and :meth:`in_memory` decodes all of them at once.

    Args:
        source: The labeled samples.
        preprocessing: How a sample becomes a tensor.

    >>> source = hs.data.open_source((torch.zeros(4, 9, 9), ["ann", "ann", "bob", "bob"]))
    >>> dataset = SourceDataset(source, hs.data.PicturePreprocessing(size=(6, 6), channels=3))
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

    def __getitem__(self, index: int) -> tuple[Shaped[Tensor, "..."], int]:
        return self.source.load(index, self.preprocessing), int(self.labels[index])

    def batch(self, index: Int[Tensor, "b"]) -> tuple[Shaped[Tensor, "b ..."], Int[Tensor, "b"]]:
        """Return the samples at ``index`` and their class numbers."""
        loaded = [self.source.load(i, self.preprocessing) for i in index.tolist()]
        data = (
            torch.stack(loaded) if loaded else torch.empty(0, *self.preprocessing.shape, dtype=self.preprocessing.dtype)
        )
        return data, self.labels[index]

    def digest(self) -> str:
        """Return a SHA-256 of everything that determines the stored samples: files, boxes, labels and cropping; not mean and std."""
        unused = ("mean", "std", "mirror")  # applied to stored samples
        fields = {name: value for name, value in self.preprocessing.to_dict().items() if name not in unused}
        return hashlib.sha256(json.dumps([fields, self.source.digest()]).encode()).hexdigest()

    def in_memory(self) -> InMemory:
        """Decode everything into one tensor."""
        return InMemory(*self.batch(torch.arange(len(self))), self.classes)


def list_visible_entries(folder: Path) -> list[Path]:
    """Return the entries of a folder whose names do not begin with a dot.

    Raises:
        DataError: The folder cannot be read.
    """
    try:
        return [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    except OSError as error:
        raise DataError(f"the folder {folder} cannot be read: {error.strerror or error}") from error


def holds_only_files(folder: Path, ending: str) -> bool:
    """Return whether a folder contains a file with this ending, but no folder and no picture or recording."""
    entries = list_visible_entries(folder)
    others = any(entry.is_dir() or entry.suffix.lower() in SAMPLE_ENDINGS for entry in entries)
    return not others and any(entry.suffix == ending for entry in entries)


def make_time_region(start: float, end: float) -> Region:
    """Return the part of a recording from ``start`` to ``end`` in seconds; raise ``ValueError`` if they are not in order."""
    if not 0 <= start < end < math.inf:
        raise ValueError(f"start and end must be seconds with 0 ≤ start < end, got {start!r} and {end!r}")
    return (float(start), float(end))


def _get_label_key(labels: set[str]) -> Any:
    """Return the sort key of labels: whole numbers by value, names alphabetically."""
    are_numbers = all(label.removeprefix("-").isdecimal() for label in labels)
    return (lambda label: (int(label), label)) if are_numbers else None
