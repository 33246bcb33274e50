"""Pictures and labels as arrays, in memory or in one ``.npz`` file."""

import hashlib
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ..errors import CorruptDataError, MissingDataError
from .source import Record, Source

LIMIT = 1 << 34  # bytes of all arrays together, as their headers declare them
IMAGES, LABELS = ("data", "images", "image", "x", "X"), ("labels", "label", "targets", "y", "Y")
_OPTIONAL = ("split", "is_query", "is_gallery", "category")


class ArraySource(Source):
    """Images (n, h, w), (n, h, w, channels) or (n, channels, h, w) and n labels, whole numbers or texts.

    Pixels are uint8, uint16, boolean, or floating point in [0, 1]. Which axis holds the channels is seen from its length: it is
    the one of 1, 3 or 4, and the last where both could be. Arrays ``split``, ``is_query``, ``is_gallery`` and ``category`` are
    taken as a table's columns of these names.

    Raises:
        CorruptDataError: if the arrays are of other shapes or types, or of different lengths.

    >>> images, labels = np.zeros((4, 8, 8, 3), dtype=np.uint8), ["ann", "ann", "bob", "bob"]
    >>> source = ArraySource(images, labels, split=["train", "test"] * 2)
    >>> source.classes, source.splits, source.records[1].name, source.fetch(1).shape
    (('ann', 'bob'), ('test', 'train'), 'the arrays[1]', (8, 8, 3))
    """

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
        given = zip(_OPTIONAL, (split, is_query, is_gallery, category), strict=True)
        columns = {key: np.asarray(value) for key, value in given if value is not None}
        for key, value in columns.items():
            if value.shape != labels.shape:
                raise CorruptDataError(f"{name}: {key} must hold one value for each image, got {value.shape}")
        super().__init__(name, [self._record(name, i, label, columns) for i, label in enumerate(labels)])

    @staticmethod
    def _record(name: str, i: int, label: Any, columns: Mapping[str, np.ndarray]) -> Record:
        own: dict[str, Any] = {
            key: bool(value[i]) if key.startswith("is_") else _text(value[i]) for key, value in columns.items()
        }
        return Record(f"{name}[{i}]", _text(label), **own)

    def fetch(self, index: int) -> np.ndarray:
        """One image (h, w) or (h, w, channels)."""
        image = self.images[index]
        return image.transpose(1, 2, 0) if self._channels_first else image

    def digest(self) -> str:
        """SHA-256 of the pixels and the records."""
        found = hashlib.sha256(f"{self.images.dtype}{self.images.shape}{self.records}".encode())
        found.update(np.ascontiguousarray(self.images).data)
        return found.hexdigest()


def read_arrays(
    path: str | os.PathLike[str], images: str | None = None, labels: str | None = None, limit: int = LIMIT
) -> ArraySource:
    """The array set in an ``.npz`` file; pickled arrays are refused.

    ``images`` and ``labels`` name the arrays. Without them the usual names are looked for (data, images, x; labels, targets, y),
    then the only array that can hold pictures, and the only other one of as many values.

    Raises:
        MissingDataError: if there is no such file.
        CorruptDataError: if it is damaged, holds more than ``limit`` bytes, or leaves open which arrays are meant.

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
            headers = {name: _header(stored, name) for name in stored.files}
            images = _choose(
                path, "images", images, IMAGES, {n: s for n, (s, _) in headers.items() if len(s) in (3, 4)}
            )
            count = headers[images][0][0]
            flat = {n: s for n, (s, k) in headers.items() if s == (count,) and k in "iuUS" and n not in _OPTIONAL}
            labels = _choose(path, "labels", labels, LABELS, flat)
            others = {name: stored[name] for name in _OPTIONAL if name in stored.files}
            return ArraySource(stored[images], stored[labels], str(path), **others)
    except CorruptDataError:
        raise
    except Exception as error:  # a damaged zip or header fails in any way; the reason goes into the message
        raise CorruptDataError(f"{path} is not a whole .npz of plain arrays: {error}".replace("\n", " ")) from error


def _header(stored: Any, name: str) -> tuple[tuple[int, ...], str]:
    """Shape and kind of a member, without reading its content."""
    with stored.zip.open(name + ".npy" if name + ".npy" in stored.zip.namelist() else name) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
        return shape, dtype.kind


def _choose(path: Path, what: str, given: str | None, usual: tuple[str, ...], fitting: Mapping[str, Any]) -> str:
    if given is not None:
        if given not in fitting:
            raise CorruptDataError(f"{path}: {what} must be one of {', '.join(fitting) or 'no array'}, got {given!r}")
        return given
    named = [name for name in usual if name in fitting] or list(fitting)
    if not named or (len(named) > 1 and named[0] not in usual):
        raise CorruptDataError(
            f"{path}: say which array holds the {what}, {what}=NAME; "
            + (f"it could be {' or '.join(named)}" if named else "none of its arrays has a fitting shape and type")
        )
    return named[0]


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
