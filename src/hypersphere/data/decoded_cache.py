"""Decoded pictures in one cache file: memory-mapped, with checksums, written atomically."""

import hashlib
import json
import math
import os
import shutil
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int, Shaped
from torch import Tensor
from torch.utils.data import Dataset

from ..files import remove_leftovers, write_atomically
from .errors import DataError, MissingDataError, corrupt
from .in_memory import InMemory
from .loader import ahead
from .sources import SourceDataset

FORMAT = "hypersphere-pictures/1"
VARIABLE = "HYPERSPHERE_CACHE"
_BLOCK = 64  # pictures decoded at a time
_BYTES = np.dtype(np.uint8)
_DTYPES = {"U8": "|u1", "F32": "<f4"}  # types of stored samples, as safetensors and NumPy name them
_HEADER_LIMIT = 1 << 30


class DecodedCache(Dataset[tuple[Tensor, int]]):
    """Pictures of one size and their labels in a file that :func:`cache_decoded` wrote, read through a memory map.

    ``batch(index)`` and ``dataset[i]`` return the same as the original dataset. The CRC-32 of each picture is verified on every
    read; the SHA-256 of shapes, labels and names is verified when the file is opened. It is a safetensors file, so other tools
    can read it too.

    Raises:
        CorruptDataError: If the file or a picture does not match its checksum.

    >>> import tempfile
    >>> pictures = hs.data.open_source((torch.zeros(4, 8, 8), [0, 0, 1, 1])).dataset(hs.data.PicturePreprocessing((8, 8), 1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     stored = DecodedCache(cache_decoded(pictures, folder).path)
    ...     len(stored), stored.batch(torch.tensor([1, 2]))[0].shape
    (4, torch.Size([2, 1, 8, 8]))
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        head = _header(self.path)
        try:
            given = json.loads(head[8:])
            meta, shape = given["__metadata__"], tuple(given["data"]["shape"])
            kind = np.dtype(_DTYPES[given["data"]["dtype"]])
            n, size = shape[0], math.prod(shape) * kind.itemsize
            if head != _pack_header(shape, kind, size, meta["classes"], meta["tables"]):
                raise ValueError("its header is another")
            if self.path.stat().st_size != len(head) + size + 12 * n:
                raise ValueError(f"{self.path.stat().st_size} bytes where {len(head) + size + 12 * n} were written")
            with self.path.open("rb") as file:
                file.seek(len(head) + size)
                labels, sums = file.read(8 * n), file.read(4 * n)
            if meta["tables"] != _digest(shape, meta["classes"], labels, sums):
                raise ValueError("the checksum of its labels is another")
        except (KeyError, IndexError, TypeError, ValueError, RecursionError) as error:
            raise corrupt(self.path, f"{type(error).__name__}: {error}", "a whole cache", "delete it") from error
        self.classes: tuple[str, ...] = tuple(json.loads(meta["classes"]))
        self.labels: Int[Tensor, "n"] = torch.from_numpy(np.frombuffer(labels, "<i8").astype(np.int64))
        self._sums = np.frombuffer(sums, "<u4")
        self._data = np.memmap(self.path, kind, "r", len(head), shape)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Shaped[Tensor, "..."], int]:
        data, labels = self.batch(torch.tensor([index]))
        return data[0], int(labels[0])

    def batch(self, index: Int[Tensor, "b"]) -> tuple[Shaped[Tensor, "b ..."], Int[Tensor, "b"]]:
        """Return copies of the samples at ``index``, after verification, and their labels."""
        data = self._data[index.numpy()]
        for row, i in zip(data, index.tolist(), strict=True):
            if zlib.crc32(np.ascontiguousarray(row).data) != self._sums[i]:
                raise corrupt(self.path, f"picture {i} changed", "what was written", "delete the file")
        return torch.from_numpy(data), self.labels[index]

    def in_memory(self) -> InMemory:
        """Return the whole dataset in memory, after verification."""
        return InMemory(*self.batch(torch.arange(len(self))), self.classes)

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["path"])  # type: ignore[misc]


def cache_decoded(
    dataset: SourceDataset, folder: str | os.PathLike[str] | None = None, workers: int = 0
) -> DecodedCache:
    """Return the same pictures from a cache file; decode them and write the file if it does not exist.

    The file name is a digest of the preprocessing and of the path, size and modification time of every file, so a changed
    source gets a new file. The file is written atomically, and leftovers of killed processes are removed.

    Args:
        dataset: The dataset of a source.
        folder: Where the file goes; by default :func:`cache_folder`.
        workers: Threads that decode.

    Raises:
        DataError: If the disk has too little space for the pictures.
        ValueError: If the source has no digest, because a change could not be detected.

    >>> import tempfile
    >>> pictures = hs.data.open_source((torch.zeros(4, 8, 8), [0, 0, 1, 1])).dataset(hs.data.PicturePreprocessing((8, 8), 1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     stored = cache_decoded(pictures, folder)
    ...     torch.equal(stored[3][0], pictures[3][0]), cache_decoded(pictures, folder).path == stored.path
    (True, True)
    """
    path = Path(folder or cache_folder()) / f"{dataset.digest()}.safetensors"
    try:
        return DecodedCache(path)
    except MissingDataError:  # the first call for this source writes the file; a damaged file is an error
        pass
    shape = (len(dataset), *dataset.preprocessing.shape)
    blocks = ahead(lambda index: dataset.batch(index)[0].numpy(), torch.arange(len(dataset)).split(_BLOCK), workers)
    kind = torch.empty(0, dtype=dataset.preprocessing.dtype).numpy().dtype
    write_cache(path, shape, dataset.labels, dataset.classes, blocks, kind)
    return DecodedCache(path)


def cache_folder() -> Path:
    """Return ``HYPERSPHERE_CACHE``, or ``hypersphere/decoded`` in ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    given = os.environ.get(VARIABLE)
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(given) if given else home / "hypersphere" / "decoded"


def write_cache(
    path: Path,
    shape: tuple[int, ...],
    labels: Int[Tensor, "n"],
    classes: Sequence[str],
    blocks: Iterable[np.ndarray],
    dtype: "np.dtype[Any]" = _BYTES,
) -> None:
    """Write stored samples (n, …), given block by block, as a cache file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path.parent, {path.name}, dead=True)
    size = math.prod(shape) * dtype.itemsize
    if shutil.disk_usage(path.parent).free < size + (64 << 20):
        raise DataError(f"{path.parent} has no room for {size / 1e9:.3g} GB of decoded samples")
    write_atomically(path, lambda temporary: _write(temporary, shape, labels, classes, blocks, dtype))


def _write(
    path: str,
    shape: tuple[int, ...],
    labels: Tensor,
    classes: Sequence[str],
    blocks: Iterable[np.ndarray],
    dtype: "np.dtype[Any]",
) -> None:
    tables = labels.numpy().astype("<i8").tobytes()
    names, size = json.dumps(list(classes)), math.prod(shape) * dtype.itemsize
    head = _pack_header(shape, dtype, size, names, "0" * 64)
    with open(path, "wb") as file:
        file.write(head)
        sums = np.fromiter(_write_with_checksums(file, blocks), "<u4", count=shape[0]).tobytes()
        if file.tell() != len(head) + size:
            raise AssertionError("the blocks hold another number of pixels than the shape")
        file.write(tables + sums)
        file.seek(0)
        file.write(_pack_header(shape, dtype, size, names, _digest(shape, names, tables, sums)))


def _write_with_checksums(file: Any, blocks: Iterable[np.ndarray]) -> Iterator[int]:
    for block in blocks:
        plain = np.ascontiguousarray(block)
        file.write(plain.data)
        yield from map(zlib.crc32, plain)


def _pack_header(shape: tuple[int, ...], dtype: "np.dtype[Any]", size: int, classes: str, digest: str) -> bytes:
    """Return the header, which has the same length for every digest."""
    n = shape[0]
    text = json.dumps(
        {
            "__metadata__": {"format": FORMAT, "classes": classes, "tables": digest},
            "data": {
                "dtype": next(name for name, kind in _DTYPES.items() if kind == dtype.str),
                "shape": list(shape),
                "data_offsets": [0, size],
            },
            "labels": {"dtype": "I64", "shape": [n], "data_offsets": [size, size + 8 * n]},
            "crc32": {"dtype": "U32", "shape": [n], "data_offsets": [size + 8 * n, size + 12 * n]},
        }
    ).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _header(path: Path) -> bytes:
    """Return the header, preceded by its length."""
    try:
        with path.open("rb") as file:
            length = file.read(8)
            return length + file.read(min(int.from_bytes(length, "little"), _HEADER_LIMIT))
    except FileNotFoundError as error:
        raise MissingDataError(f"there is no cache {path}") from error


def _digest(shape: tuple[int, ...], classes: str, labels: bytes, sums: bytes) -> str:
    return hashlib.sha256(json.dumps([list(shape), classes]).encode() + labels + sums).hexdigest()
