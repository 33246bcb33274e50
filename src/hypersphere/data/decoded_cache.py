"""Cache files of decoded samples: memory-mapped, with checksums, written atomically."""

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
from .errors import DataError, MissingDataError, make_corrupt_error
from .in_memory import InMemory
from .loader import map_ahead
from .roots import get_user_cache
from .sources import SourceDataset

FORMAT = "hypersphere-pictures/1"
VARIABLE = "HYPERSPHERE_CACHE"
_BLOCK_SIZE = 64  # samples per task of a worker
_BYTES = np.dtype(np.uint8)
_DTYPES = {"U8": "|u1", "F32": "<f4"}  # types of stored samples: name in safetensors → name in NumPy
_MAX_HEADER_BYTES = 1 << 30


class DecodedCache(Dataset[tuple[Tensor, int]]):
    """The dataset in a cache file of :func:`cache_decoded`: samples of one shape and their labels, memory-mapped.

    ``batch(index)`` and ``dataset[i]`` return the same as the original dataset. Opening the file verifies the SHA-256 of shape, labels
    and class names. Every read verifies the CRC-32 of each sample. The file is a safetensors file, so other tools can read it.

    Raises:
        CorruptDataError: If the file or a sample does not match its checksum.

    >>> import tempfile
    >>> pictures = hs.data.open_source((torch.zeros(4, 8, 8), [0, 0, 1, 1])).dataset(hs.data.PicturePreprocessing((8, 8), 1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     stored = DecodedCache(cache_decoded(pictures, folder).path)
    ...     len(stored), stored.batch(torch.tensor([1, 2]))[0].shape
    (4, torch.Size([2, 1, 8, 8]))
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        head = _read_header(self.path)
        try:
            header = json.loads(head[8:])
            meta, shape = header["__metadata__"], tuple(header["data"]["shape"])
            dtype = np.dtype(_DTYPES[header["data"]["dtype"]])
            n, size = shape[0], math.prod(shape) * dtype.itemsize
            if head != _pack_header(shape, dtype, size, meta["classes"], meta["tables"]):
                raise ValueError("the header has changed")
            if self.path.stat().st_size != len(head) + size + 12 * n:
                raise ValueError(f"{self.path.stat().st_size} bytes instead of {len(head) + size + 12 * n}")
            with self.path.open("rb") as file:
                file.seek(len(head) + size)
                labels, sums = file.read(8 * n), file.read(4 * n)
            if meta["tables"] != _compute_digest(shape, meta["classes"], labels, sums):
                raise ValueError("the labels do not match their checksum")
        except (KeyError, IndexError, TypeError, ValueError, RecursionError) as error:
            raise make_corrupt_error(
                self.path, f"{type(error).__name__}: {error}", "a whole cache", "delete it"
            ) from error
        self.classes: tuple[str, ...] = tuple(json.loads(meta["classes"]))
        self.labels: Int[Tensor, "n"] = torch.from_numpy(np.frombuffer(labels, "<i8").astype(np.int64))
        self._sums = np.frombuffer(sums, "<u4")
        self._data = np.memmap(self.path, dtype, "r", len(head), shape)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Shaped[Tensor, "..."], int]:
        data, labels = self.batch(torch.tensor([index]))
        return data[0], int(labels[0])

    def batch(self, index: Int[Tensor, "b"]) -> tuple[Shaped[Tensor, "b ..."], Int[Tensor, "b"]]:
        """Return verified copies of the samples at ``index`` and their labels."""
        data = self._data[index.numpy()]
        for row, i in zip(data, index.tolist(), strict=True):
            if zlib.crc32(np.ascontiguousarray(row).data) != self._sums[i]:
                raise make_corrupt_error(
                    self.path, f"changed bytes in sample {i}", "the bytes that were written", "delete the file"
                )
        return torch.from_numpy(data), self.labels[index]

    def in_memory(self) -> InMemory:
        """Return the whole dataset in memory, verified."""
        return InMemory(*self.batch(torch.arange(len(self))), self.classes)

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["path"])  # type: ignore[misc]


def cache_decoded(
    dataset: SourceDataset, folder: str | os.PathLike[str] | None = None, workers: int = 0
) -> DecodedCache:
    """Return the dataset from its cache file. If the file does not exist, decode all samples and write it.

    The file name is a digest of the preprocessing and of the path, size and modification time of every file, so a changed
    source gets a new file. The file is written atomically, and temporary files of killed processes are removed.

    Args:
        dataset: The dataset of a source.
        folder: Folder of the cache file; by default :func:`get_cache_folder`.
        workers: Number of decoding threads.

    Raises:
        CorruptDataError: If the cache file exists but is damaged.
        DataError: If the disk has too little space.
        ValueError: If the source has no digest, because its changes could not be detected.

    >>> import tempfile
    >>> pictures = hs.data.open_source((torch.zeros(4, 8, 8), [0, 0, 1, 1])).dataset(hs.data.PicturePreprocessing((8, 8), 1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     stored = cache_decoded(pictures, folder)
    ...     torch.equal(stored[3][0], pictures[3][0]), cache_decoded(pictures, folder).path == stored.path
    (True, True)
    """
    path = Path(folder or get_cache_folder()) / f"{dataset.digest()}.safetensors"
    try:
        return DecodedCache(path)
    except MissingDataError:
        pass
    shape = (len(dataset), *dataset.preprocessing.shape)
    blocks = map_ahead(
        lambda index: dataset.batch(index)[0].numpy(), torch.arange(len(dataset)).split(_BLOCK_SIZE), workers
    )
    dtype = torch.empty(0, dtype=dataset.preprocessing.dtype).numpy().dtype
    write_cache(path, shape, dataset.labels, dataset.classes, blocks, dtype)
    return DecodedCache(path)


def get_cache_folder() -> Path:
    """Return the folder in ``HYPERSPHERE_CACHE``, by default ``hypersphere/decoded`` in ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    return Path(os.environ.get(VARIABLE) or get_user_cache() / "decoded")


def write_cache(
    path: Path,
    shape: tuple[int, ...],
    labels: Int[Tensor, "n"],
    classes: Sequence[str],
    blocks: Iterable[np.ndarray],
    dtype: "np.dtype[Any]" = _BYTES,
) -> None:
    """Write blocks of stored samples, together of ``shape`` (n, …), as a cache file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path.parent, {path.name}, skip_running=True)
    size = math.prod(shape) * dtype.itemsize
    if shutil.disk_usage(path.parent).free < size + (64 << 20):
        raise DataError(f"{path.parent} has too little space for {size / 1e9:.3g} GB of decoded samples")
    write_atomically(path, lambda temporary: _write_file(temporary, shape, labels, classes, blocks, dtype))


def _write_file(
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
            raise AssertionError("the blocks do not fill the shape")
        file.write(tables + sums)
        file.seek(0)
        file.write(_pack_header(shape, dtype, size, names, _compute_digest(shape, names, tables, sums)))


def _write_with_checksums(file: Any, blocks: Iterable[np.ndarray]) -> Iterator[int]:
    for block in map(np.ascontiguousarray, blocks):
        file.write(block.data)
        yield from map(zlib.crc32, block)


def _pack_header(shape: tuple[int, ...], dtype: "np.dtype[Any]", size: int, classes: str, digest: str) -> bytes:
    """Return the header. Its length does not depend on the digest, so it can be overwritten in place."""
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


def _read_header(path: Path) -> bytes:
    """Return the header, preceded by its length."""
    try:
        with path.open("rb") as file:
            length = file.read(8)
            return length + file.read(min(int.from_bytes(length, "little"), _MAX_HEADER_BYTES))
    except FileNotFoundError as error:
        raise MissingDataError(f"there is no cache {path}") from error


def _compute_digest(shape: tuple[int, ...], classes: str, labels: bytes, sums: bytes) -> str:
    return hashlib.sha256(json.dumps([list(shape), classes]).encode() + labels + sums).hexdigest()
