"""Read and unpack archives from untrusted sources.

A folder, a tar file (plain, gz, bz2, xz) and a zip file are all read as pairs (name, bytes) of their regular files. Absolute names, names
that leave the folder, links and device files are refused. A truncated archive is an error. Unpacking writes to a temporary folder, which is
renamed when it is complete.
"""

import bz2
import gzip
import io
import lzma
import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from .errors import CorruptDataError, DataError, corrupt

LIMIT = 1 << 30  # bytes of one file; a hundred times the largest file of the known datasets
TOTAL = 1 << 36  # bytes of all files of an archive
FILES = 4_000_000  # in one archive
_BLOCK = tarfile.BLOCKSIZE
_BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    lzma.LZMAError,
    zlib.error,
    EOFError,
    OSError,
    RuntimeError,
    ValueError,
)


def walk(
    path: Path, select: Callable[[str], bool] = lambda name: True, limit: int = LIMIT
) -> Iterator[tuple[str, bytes]]:
    """Yield (name, content) of every regular file accepted by ``select``: sorted for a folder, in stored order for an archive.

    Names are relative, with forward slashes. A link in a folder must point inside the folder; an archive must not contain links.
    """
    if path.is_dir():
        for name in names_in(path):
            if select(name):
                yield name, (path / name).read_bytes()
        return
    reader = _zip if path.suffix == ".zip" else _tar
    try:
        yield from _limit_size(path, reader(path, select, limit))
    except CorruptDataError:
        raise
    except _BROKEN as error:
        raise corrupt(path, f"a damaged archive ({error})", "a whole tar or zip archive") from error


def _limit_size(path: Path, members: Iterator[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    """Yield the members while their total size is within the limits, because a small archive can unpack to a huge one."""
    total = 0
    for count, (name, content) in enumerate(members, 1):
        total += len(content)
        if total > TOTAL or count > FILES:
            raise corrupt(path, f"more than {TOTAL} bytes or {FILES} files", "an archive of fewer")
        yield name, content


def extract(path: Path, target: Path, rename: Callable[[str], str | None] = lambda name: name) -> list[Path]:
    """Unpack an archive into the new folder ``target``, completely or not at all.

    ``rename`` returns the new name of each member below ``target``, or None to leave it out.
    """
    if target.exists():
        raise ValueError(f"target must not exist yet, got {target}")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        written = []
        for name, content in walk(path, lambda name: rename(name) is not None):
            place = _safe(path, str(rename(name)))
            (temporary / place).parent.mkdir(parents=True, exist_ok=True)
            (temporary / place).write_bytes(content)
            written.append(target / place)
        temporary.chmod(0o755)
        os.rename(temporary, target)
        return written
    finally:
        shutil.rmtree(temporary, ignore_errors=True)  # does nothing after a successful rename


def inside(path: Path, root: Path) -> Path:
    """Return ``path`` if it lies in ``root`` after all links are resolved; raise an error otherwise."""
    if not path.resolve().is_relative_to(root.resolve()):
        raise corrupt(path, f"a link out of the data root, to {path.resolve()}", f"a file inside {root}")
    return path


def names_in(root: Path, below: str = "") -> Iterator[str]:
    """Return the files of a folder and its subfolders, sorted. A link that leaves the folder is an error."""
    try:
        with os.scandir(root / below) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        raise DataError(f"the folder {root / below} cannot be read: {error.strerror or error}") from error
    for entry in entries:
        name = f"{below}/{entry.name}" if below else entry.name
        if entry.is_symlink():
            inside(root / name, root)
        if entry.is_dir(follow_symlinks=False):
            yield from names_in(root, name)
        elif entry.is_file():
            yield name
        elif entry.is_symlink():
            raise corrupt(root / name, "a link to a folder or to nothing", "files and plain folders")


def _safe(archive: Path, name: str) -> PurePosixPath:
    """Return the member's name as a relative path that stays inside the target folder on every platform."""
    pure = PurePosixPath(name)
    windows = PureWindowsPath(name)
    if (
        pure.is_absolute()
        or windows.drive
        or windows.root
        or ".." in (*pure.parts, *windows.parts)
        or not pure.parts
        or "\0" in name
    ):
        raise corrupt(archive, f"a member named {name!r}", "relative names that stay inside the archive")
    return pure


def _tar(path: Path, select: Callable[[str], bool], limit: int) -> Iterator[tuple[str, bytes]]:
    with _open_decompressed(path) as raw:
        stream = _Remembering(raw)
        with tarfile.open(fileobj=stream, mode="r:") as tar:  # type: ignore[call-overload]
            for member in tar:
                name = str(_safe(path, member.name)) if member.name not in (".", "./") else "."
                if member.isdir():
                    continue
                if not member.isreg():
                    raise corrupt(path, f"the link or device file {member.name!r}", "regular files and folders only")
                if member.size > limit:
                    raise corrupt(path, f"{member.name!r} of {member.size} bytes", f"files of at most {limit}")
                if select(name):
                    content = tar.extractfile(member)
                    assert content is not None
                    yield name, content.read()
                tar.members = []  # type: ignore[attr-defined]  # tarfile keeps every header it has seen otherwise
        # tarfile treats a damaged header as the end of the archive. The real end is a block of zeros, followed by checksums.
        if stream.last != bytes(_BLOCK):
            raise corrupt(path, "no end mark after the last member", "a whole tar archive")
        while raw.read(1 << 20):
            pass


def _open_decompressed(path: Path) -> io.BufferedIOBase:
    with path.open("rb") as file:
        magic = file.read(6)
    if magic.startswith(b"\x1f\x8b"):
        return gzip.open(path)
    if magic.startswith(b"BZh"):
        return bz2.open(path)
    if magic == b"\xfd7zXZ\0":
        return lzma.open(path)
    return path.open("rb")


class _Remembering:
    """A stream that remembers the last block read."""

    def __init__(self, stream: io.BufferedIOBase):
        self.stream = stream
        self.last = b""

    def read(self, size: int = -1) -> bytes:
        self.last = self.stream.read(size)
        return self.last

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _zip(path: Path, select: Callable[[str], bool], limit: int) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            name = str(_safe(path, info.filename))
            if info.is_dir():
                continue
            kind = stat.S_IFMT(info.external_attr >> 16)
            if kind not in (0, stat.S_IFREG):
                raise corrupt(path, f"the link or device file {info.filename!r}", "regular files and folders only")
            if info.file_size > limit:
                raise corrupt(path, f"{info.filename!r} of {info.file_size} bytes", f"files of at most {limit}")
            if select(name):
                yield name, archive.read(info)
