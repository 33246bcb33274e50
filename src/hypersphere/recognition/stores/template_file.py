"""The features of an SQLite gallery: fixed-size records in a file beside the database, appended to and memory-mapped.

The file begins with 32 bytes that say which gallery it belongs to: a magic word, the gallery's id, the generation of the
file and a checksum. A record is checksum (uint32), identity (uint32), number (int64) and the feature (d × float32), all
little-endian. The database alone says how many records are valid. Records beyond that were left by a killed writer and
are overwritten by the next one. Valid records never change, except that those of removed templates are overwritten with
zeros. In an encrypted gallery the feature is replaced by a nonce, the ciphertext and a tag (28 bytes more).
"""

import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from .store import Cipher, DamagedGalleryError

CHUNK = 8192  # records written or copied at a time
MAGIC = b"hypsfeat"
HEADER_BYTES = 32
SEAL_BYTES = 28  # nonce and tag of an encrypted feature


class TemplateFile(NamedTuple):
    """A file of features and the gallery and generation that it must belong to.

    >>> TemplateFile(Path("people.db.features-0"), "0" * 32, 0).name
    'people.db.features-0'
    """

    path: Path
    gallery: str
    generation: int
    cipher: Cipher | None = None

    def __str__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        """The name of the file without its folder."""
        return self.path.name

    def header(self) -> bytes:
        """Return the first bytes of the file."""
        content = MAGIC + bytes.fromhex(self.gallery) + struct.pack("<I", self.generation)
        return content + struct.pack("<I", zlib.crc32(content))

    def check_header(self, header: bytes) -> None:
        """Raise a :class:`DamagedGalleryError` unless the file begins with the right header."""
        if header != self.header():
            raise DamagedGalleryError(
                f"{self.path} belongs to another gallery, or its header is damaged: the two files of a gallery must "
                "stay together; `hypersphere gallery backup` copies both"
            )


def make_record_type(dim: int, cipher: Cipher | None = None) -> np.dtype[Any]:
    """Return the NumPy type of a record. The 16 bytes before the feature keep it aligned."""
    feature: Any = ("feature", "<f4", (dim,)) if cipher is None else ("feature", f"V{4 * dim + SEAL_BYTES}")
    return np.dtype([("checksum", "<u4"), ("identity", "<u4"), ("number", "<i8"), feature])


def pack(
    numbers: Int[np.ndarray, "n"],
    identities: Int[np.ndarray, "n"],
    features: Float[np.ndarray, "n d"],
    cipher: Cipher | None = None,
) -> np.ndarray:
    """Return records with their checksums. With a cipher, the features are encrypted."""
    records = np.zeros(len(features), make_record_type(features.shape[1], cipher))
    records["identity"], records["number"] = identities, numbers
    if cipher is None:
        records["feature"] = features
    else:
        for i, feature in enumerate(np.ascontiguousarray(features, dtype="<f4")):
            records["feature"][i] = np.void(cipher.encrypt(feature.tobytes(), _make_context(records[i])))
    records["checksum"] = list(_compute_checksums(records))
    return records


def read_features(
    records: np.ndarray, dim: int, cipher: Cipher | None, valid: np.ndarray | None = None
) -> Float[np.ndarray, "n d"]:
    """Return the features of records: memory-mapped, or decrypted in memory.

    Args:
        records: Records of the file.
        dim: The dimension of the features.
        cipher: Decrypts the features; None if they are not encrypted.
        valid: False for removed records, which were overwritten and cannot be decrypted; their features are zeros.
    """
    if cipher is None:
        features: np.ndarray = records["feature"]
        return features
    decrypted = np.zeros((len(records), dim), np.float32)
    for i in range(len(records)) if valid is None else np.flatnonzero(valid).tolist():
        content = cipher.decrypt(bytes(records[i]["feature"]), _make_context(records[i]))
        decrypted[i] = np.frombuffer(content, "<f4")
    return decrypted


def find_damaged(records: np.ndarray) -> Int[np.ndarray, "bad"]:
    """Return the positions of the records that do not match their checksum."""
    damaged: list[int] = []
    for start in range(0, len(records), CHUNK):
        part = np.ascontiguousarray(records[start : start + CHUNK])
        expected = np.fromiter(_compute_checksums(part), np.uint32, len(part))
        damaged += (start + np.flatnonzero(expected != part["checksum"])).tolist()
    return np.array(damaged, dtype=np.int64)


def append(target: TemplateFile, at: int, parts: Iterable[np.ndarray]) -> int:
    """Write records from position ``at`` on and return their number. They are on disk when this returns."""
    path = target.path
    is_new = not path.exists()
    if is_new and at:
        raise _report_missing(path)
    count = 0
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
    with os.fdopen(descriptor, "r+b", buffering=0) as file:
        if at:
            target.check_header(file.read(HEADER_BYTES))
        else:
            file.truncate(0)
            file.write(target.header())
        for part in parts:
            offset = HEADER_BYTES + (at + count) * part.dtype.itemsize
            if count == 0:
                if os.fstat(descriptor).st_size < offset:
                    raise DamagedGalleryError(f"{path} is damaged: it is shorter than the database says")
                file.truncate(offset)  # delete the records that a killed writer left; no reader maps them
                file.seek(offset)
            _write(file, part)
            count += len(part)
        os.fsync(descriptor)
    if is_new:
        sync_folder(path.parent)
    return count


def map_records(source: TemplateFile, dim: int, rows: int) -> np.ndarray:
    """Return the first ``rows`` records, memory-mapped: pages are read from the file when they are accessed."""
    if not rows:
        return np.zeros(0, make_record_type(dim, source.cipher))
    path = source.path
    try:
        with open(path, "rb") as file:
            source.check_header(file.read(HEADER_BYTES))
        layout = make_record_type(dim, source.cipher)
        if os.stat(path).st_size < HEADER_BYTES + rows * layout.itemsize:
            raise DamagedGalleryError(f"{path} is damaged: it is shorter than the database says")
        # Copy on write: torch needs writable memory, but nothing may be written to the file.
        return np.memmap(path, layout, "c", offset=HEADER_BYTES, shape=(rows,))
    except FileNotFoundError as error:
        raise _report_missing(path) from error


def wipe(target: TemplateFile, dim: int, slots: Iterable[int]) -> None:
    """Overwrite records with zeros, except for their numbers. They are on disk when this returns."""
    size = make_record_type(dim, target.cipher).itemsize
    with open(target.path, "r+b", buffering=0) as file:
        for slot in slots:
            file.seek(HEADER_BYTES + slot * size)
            file.write(bytes(8))
            file.seek(HEADER_BYTES + slot * size + 16)
            file.write(bytes(size - 16))
        os.fsync(file.fileno())


def split_records(records: np.ndarray, keep: np.ndarray | None = None) -> Iterator[np.ndarray]:
    """Yield records in chunks, only those where ``keep`` is true."""
    for start in range(0, len(records), CHUNK):
        part = records[start : start + CHUNK]
        yield np.ascontiguousarray(part if keep is None else part[keep[start : start + CHUNK]])


def find_slot(records: np.ndarray, number: int) -> int | None:
    """Return the position of the record with this number. Numbers grow along the file, so bisection finds it."""
    low, high = 0, len(records)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if int(records[middle]["number"]) < number else (low, middle)
    return low if low < len(records) and int(records[low]["number"]) == number else None


def sync_folder(folder: Path) -> None:
    """Write the entries of a folder to disk."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _make_context(record: Any) -> bytes:
    """Return the context that an encrypted feature is bound to: its identity and its number."""
    return struct.pack("<Iq", int(record["identity"]), int(record["number"]))


def _compute_checksums(records: np.ndarray) -> Iterator[int]:
    size, content = records.dtype.itemsize, records.view(np.uint8).reshape(-1).data
    return (zlib.crc32(content[start + 4 : start + size]) for start in range(0, len(content), size))


def _write(file: Any, part: np.ndarray) -> None:
    content = part.view(np.uint8).reshape(-1).data
    while content:
        content = content[file.write(content) :]


def _report_missing(path: Path) -> DamagedGalleryError:
    return DamagedGalleryError(
        f"{path}, which holds the features of the gallery, is missing: it must stay beside the database; "
        "`hypersphere gallery backup` copies both"
    )
