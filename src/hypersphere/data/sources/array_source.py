"""Pictures and labels as arrays, in an ``.npz`` file, or as a torch dataset."""

import hashlib
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from ..errors import CorruptDataError, DataError, MissingDataError
from .source import Record, Source, holds_only_files, list_visible_entries

MAX_BYTES_UNPACKED = 1 << 34  # of all arrays together, as their headers declare them
IMAGE_ARRAYS, LABEL_ARRAYS = ("data", "images", "image", "x", "X"), ("labels", "label", "targets", "y", "Y")
_OPTIONAL = ("split", "is_query", "is_gallery", "category")


class ArraySource(Source):
    """Images and labels as arrays.

    Args:
        images: (n, h, w), (n, h, w, channels) or (n, channels, h, w), as uint8, uint16, bool, or floating point in [0, 1]. The
            channel axis has the length 1, 3 or 4; if both axes do, it is the last one.
        labels: n whole numbers or texts.
        name: The name of the source in messages.
        split: The split of each image.
        is_query: Whether each image is a query.
        is_gallery: Whether each image is a gallery entry.
        category: A further group of each image.

    Raises:
        CorruptDataError: The arrays have other shapes or types, or different lengths.

    >>> images, labels = np.zeros((4, 8, 8, 3), dtype=np.uint8), ["ann", "ann", "bob", "bob"]
    >>> source = ArraySource(images, labels, split=["train", "test"] * 2)
    >>> source.classes, source.splits, source.records[1].name, source.fetch(1).shape
    (('ann', 'bob'), ('test', 'train'), 'the arrays[1]', (8, 8, 3))
    """

    description = "an array set (.npz, or a pair of arrays)"

    def __init__(
        self,
        images: Any,
        labels: Any,
        name: str = "the arrays",
        split: Any = None,
        is_query: Any = None,
        is_gallery: Any = None,
        category: Any = None,
    ):
        self.images = images.numpy() if isinstance(images, Tensor) else np.asarray(images)
        labels = np.asarray(labels.numpy() if isinstance(labels, Tensor) else labels)
        if self.images.ndim not in (3, 4) or self.images.dtype.kind not in "buf" or not self.images.size:
            raise CorruptDataError(
                f"{name}: images must be pixels (n, h, w) or (n, h, w, channels) as uint8, uint16 or float in [0, 1], "
                f"got {self.images.dtype} {self.images.shape}"
            )
        if labels.shape != (len(self.images),) or labels.dtype.kind not in "iuUS":
            raise CorruptDataError(
                f"{name}: labels must be {len(self.images)} whole numbers or texts, one for each image, "
                f"got {labels.dtype} {labels.shape}"
            )
        self._channels_first = (
            self.images.ndim == 4 and self.images.shape[1] in (1, 3, 4) and self.images.shape[3] not in (1, 3, 4)
        )
        options = zip(_OPTIONAL, (split, is_query, is_gallery, category), strict=True)
        columns = {key: np.asarray(value) for key, value in options if value is not None}
        for key, value in columns.items():
            if value.shape != labels.shape:
                raise CorruptDataError(f"{name}: {key} must hold one value for each image, got {value.shape}")
        super().__init__(name, [self._build_record(name, i, label, columns) for i, label in enumerate(labels)])

    @staticmethod
    def _build_record(name: str, i: int, label: Any, columns: Mapping[str, np.ndarray]) -> Record:
        own: dict[str, Any] = {
            key: bool(value[i]) if key.startswith("is_") else _to_text(value[i]) for key, value in columns.items()
        }
        return Record(f"{name}[{i}]", _to_text(label), **own)

    @classmethod
    def recognizes(cls, source: Any) -> bool:
        """Return whether ``source`` is a pair, an ``.npz`` file, or a folder that contains a single ``.npz`` file and no samples."""
        if isinstance(source, Path):
            return source.suffix == ".npz" or (source.is_dir() and len(_list_npz_files(source)) == 1)
        return isinstance(source, tuple) and len(source) == 2

    @classmethod
    def open(cls, source: Any, images: str | None = None, labels: str | None = None) -> "ArraySource":  # type: ignore[override]
        """Open a pair of arrays or a file; ``images`` and ``labels`` name the arrays of a file."""
        if not isinstance(source, Path):
            if images is not None or labels is not None:
                raise ValueError("images and labels name the arrays of an .npz; a pair of arrays has no names")
            return cls(*source)
        return read_arrays(source if source.suffix == ".npz" else _list_npz_files(source)[0], images, labels)

    def fetch(self, index: int) -> np.ndarray:
        """Return one image (h, w) or (h, w, channels)."""
        image = self.images[index]
        return image.transpose(1, 2, 0) if self._channels_first else image

    def digest(self) -> str:
        """Return a SHA-256 of the pixels and the records."""
        digest = hashlib.sha256(f"{self.images.dtype}{self.images.shape}{self.records}".encode())
        digest.update(np.ascontiguousarray(self.images).data)
        return digest.hexdigest()


def read_arrays(
    path: str | os.PathLike[str], images: str | None = None, labels: str | None = None, limit: int = MAX_BYTES_UNPACKED
) -> ArraySource:
    """Read images and labels from an ``.npz`` file; pickled arrays are refused.

    Args:
        path: The file.
        images: Name of the array of images. By default a common name (data, images, x), or the only array that can hold images.
        labels: Name of the array of labels. By default a common name (labels, targets, y), or the only array of that length.
        limit: Maximum size of the unpacked file in bytes.

    Returns:
        The source.

    Raises:
        MissingDataError: There is no such file.
        CorruptDataError: The file is damaged, too large, or it is unclear which arrays are meant.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/faces.npz", images=np.zeros((4, 8, 8), dtype=np.uint8), who=np.array([7, 7, 9, 9]))
    ...     source = read_arrays(f"{folder}/faces.npz")
    >>> len(source), source.classes
    (4, ('7', '9'))
    """
    path = Path(path)
    if not path.is_file():
        raise MissingDataError(f"there is no file {path}")
    try:
        with zipfile.ZipFile(path) as archive:
            total = sum(info.file_size for info in archive.infolist())
        if total > limit:
            raise ValueError(f"{total} bytes when unpacked, more than {limit}")
        with np.load(path, allow_pickle=False) as stored:
            headers = {name: _read_header(stored, name) for name in stored.files}
            images = _choose_array(
                path, "images", images, IMAGE_ARRAYS, {n: s for n, (s, _) in headers.items() if len(s) in (3, 4)}
            )
            count = headers[images][0][0]
            flat = {n: s for n, (s, k) in headers.items() if s == (count,) and k in "iuUS" and n not in _OPTIONAL}
            labels = _choose_array(path, "labels", labels, LABEL_ARRAYS, flat)
            others = {name: stored[name] for name in _OPTIONAL if name in stored.files}
            return ArraySource(stored[images], stored[labels], str(path), **others)
    except CorruptDataError:
        raise
    except Exception as error:  # a damaged file can raise any exception; its reason becomes part of the message
        raise CorruptDataError(f"{path} is not a whole .npz of plain arrays: {error}".replace("\n", " ")) from error


def _list_npz_files(folder: Path) -> list[Path]:
    """Return the ``.npz`` files of a folder that contains no folder and no picture or recording."""
    if not holds_only_files(folder, ".npz"):
        return []
    return [entry for entry in list_visible_entries(folder) if entry.suffix == ".npz"]


def _read_header(stored: Any, name: str) -> tuple[tuple[int, ...], str]:
    """Return shape and kind of a member without reading its content."""
    with stored.zip.open(name + ".npy" if name + ".npy" in stored.zip.namelist() else name) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
        return shape, dtype.kind


def _choose_array(
    path: Path, what: str, name: str | None, common_names: tuple[str, ...], fitting: Mapping[str, Any]
) -> str:
    """Return ``name`` if it is an array of fitting shape and type; without a name, the array with a common name or the only one."""
    if name is not None:
        if name not in fitting:
            raise CorruptDataError(f"{path}: {what} must be one of {', '.join(fitting) or 'no array'}, got {name!r}")
        return name
    candidates = [common for common in common_names if common in fitting] or list(fitting)
    if not candidates or (len(candidates) > 1 and candidates[0] not in common_names):
        reason = (
            f"it could be {' or '.join(candidates)}"
            if candidates
            else "none of its arrays has a fitting shape and type"
        )
        raise CorruptDataError(f"{path}: say which array holds the {what}, {what}=NAME; {reason}")
    return candidates[0]


def _to_text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


class DatasetSource(Source):
    """The items (image, label) of a map-style dataset.

    Labels are those in ``dataset.labels`` or ``dataset.targets`` if there is one per item; otherwise every item is read once.
    ``dataset.classes`` names the labels if they are whole numbers and all have a name.

    Args:
        dataset: The dataset. Its images may be any objects that a preprocessing accepts.
        name: The name of the source in messages; by default the name of the dataset's class.

    Raises:
        DataError: The dataset can only be iterated over, or its items are not (image, label).

    >>> items = torch.utils.data.TensorDataset(torch.rand(2, 1, 8, 8), torch.tensor([0, 1]))
    >>> source = DatasetSource(items, name="two pictures")
    >>> source.classes, source.records[1].name
    (('0', '1'), 'two pictures[1]')
    """

    description = "a torch dataset"
    is_general = True

    def __init__(self, dataset: "Dataset[Any]", name: str | None = None):
        has_index = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
        if not has_index or isinstance(dataset, IterableDataset):
            raise DataError(
                f"a dataset must have a length and an index, got {type(dataset).__name__}; "
                "pass an iterable dataset to Loader instead"
            )
        self.items: Any = dataset
        title = name or type(dataset).__name__
        labels = _read_labels(self.items)
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


def _read_labels(dataset: Any) -> list[Any]:
    for attribute in ("labels", "targets"):
        labels = getattr(dataset, attribute, None)
        if labels is not None and len(labels) == len(dataset):
            return [_to_plain_value(label) for label in (labels.tolist() if isinstance(labels, Tensor) else labels)]
    found = []
    for i in range(len(dataset)):
        item = dataset[i]
        if not isinstance(item, tuple | list) or len(item) < 2:
            raise DataError(f"an item of the dataset must be (image, label), got {type(item).__name__}")
        found.append(_to_plain_value(item[1]))
    return found


def _to_plain_value(label: Any) -> Any:
    return label.item() if hasattr(label, "item") else label
