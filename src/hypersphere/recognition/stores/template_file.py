"""The features of an SQLite gallery: fixed-size records in a file beside the database, appended to and memory-mapped.

A record is checksum (uint32), identity (uint32), number (int64) and the feature (d × float32), all little-endian. The
database alone says how many records count. Records beyond that are what a killed writer left and the next one
overwrites; records that count never change, except that those of removed templates are overwritten with zeros.
"""

import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from .store import DamagedGalleryError

CHUNK = 8192  # records written or copied at a time


def record(dim: int) -> np.dtype[Any]:
    """Return the layout of a record; its 16 bytes before the feature keep features aligned."""
    return np.dtype([("checksum", "<u4"), ("identity", "<u4"), ("number", "<i8"), ("feature", "<f4", (dim,))])


def pack(
    numbers: Int[np.ndarray, "n"], identities: Int[np.ndarray, "n"], features: Float[np.ndarray, "n d"]
) -> np.ndarray:
    """Return records with their checksums."""
    records = np.zeros(len(features), record(features.shape[1]))
    records["identity"], records["number"], records["feature"] = identities, numbers, features
    records["checksum"] = list(_checksums(records))
    return records


def damaged(records: np.ndarray) -> Int[np.ndarray, "bad"]:
    """Return the positions of the records whose checksum does not fit."""
    wrong: list[int] = []
    for start in range(0, len(records), CHUNK):
        part = np.ascontiguousarray(records[start : start + CHUNK])
        found = np.fromiter(_checksums(part), np.uint32, len(part))
        wrong += (start + np.flatnonzero(found != part["checksum"])).tolist()
    return np.array(wrong, dtype=np.int64)


def append(path: Path, at: int, parts: Iterable[np.ndarray]) -> int:
    """Write records from position ``at`` on; they are on disk when this returns, and how many it were."""
    fresh = not path.exists()
    if fresh and at:
        raise _missing(path)
    count = 0
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
    with os.fdopen(descriptor, "r+b", buffering=0) as file:
        for part in parts:
            offset = (at + count) * part.dtype.itemsize
            if count == 0:
                if os.fstat(descriptor).st_size < offset:
                    raise DamagedGalleryError(f"{path} is damaged: it is shorter than its gallery says")
                file.truncate(offset)  # what a killed writer left; nobody maps it
                file.seek(offset)
            _write(file, part)
            count += len(part)
        os.fsync(descriptor)
    if fresh:
        sync_folder(path.parent)
    return count


def mapped(path: Path, dim: int, rows: int) -> np.ndarray:
    """Return the first ``rows`` records without reading them: pages come from the file when they are looked at."""
    if not rows:
        return np.zeros(0, record(dim))
    try:
        if os.stat(path).st_size < rows * record(dim).itemsize:
            raise DamagedGalleryError(f"{path} is damaged: it is shorter than its gallery says")
        # Copy on write: torch wants memory it may write to, and what is written would stay in this process.
        return np.memmap(path, record(dim), "c", shape=(rows,))
    except FileNotFoundError as error:
        raise _missing(path) from error


def wipe(path: Path, dim: int, slots: Iterable[int]) -> None:
    """Overwrite records with zeros, all but their numbers, which keep their order; on disk when this returns."""
    size = record(dim).itemsize
    with open(path, "r+b", buffering=0) as file:
        for slot in slots:
            file.seek(slot * size)
            file.write(bytes(8))
            file.seek(slot * size + 16)
            file.write(bytes(size - 16))
        os.fsync(file.fileno())


def chunks(records: np.ndarray, keep: np.ndarray | None = None) -> Iterator[np.ndarray]:
    """Yield records some at a time, only those that ``keep`` says."""
    for start in range(0, len(records), CHUNK):
        part = records[start : start + CHUNK]
        yield np.ascontiguousarray(part if keep is None else part[keep[start : start + CHUNK]])


def slot_of(records: np.ndarray, number: int) -> int | None:
    """Return where the record of this number is; numbers grow along the file."""
    low, high = 0, len(records)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if int(records[middle]["number"]) < number else (low, middle)
    return low if low < len(records) and int(records[low]["number"]) == number else None


def sync_folder(folder: Path) -> None:
    """Bring a new name in a folder to disk."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _checksums(records: np.ndarray) -> Iterator[int]:
    size, content = records.dtype.itemsize, records.view(np.uint8).reshape(-1).data
    return (zlib.crc32(content[start + 4 : start + size]) for start in range(0, len(content), size))


def _write(file: Any, part: np.ndarray) -> None:
    content = part.view(np.uint8).reshape(-1).data
    while content:
        content = content[file.write(content) :]


def _missing(path: Path) -> DamagedGalleryError:
    return DamagedGalleryError(
        f"{path}, which holds the features of the gallery, is missing: it must stay beside the database; "
        "`hypersphere gallery backup` copies both"
    )
