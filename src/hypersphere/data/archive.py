"""Read and unpack archives from untrusted sources.

Folders, tar files (plain, gz, bz2, xz) and zip files are read as pairs (name, bytes) of their regular files. Absolute names,
names that leave the folder, links and device files are refused. A truncated archive is an error. Unpacking writes to a
temporary folder and renames it when it is complete.
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

from .errors import CorruptDataError, DataError, make_corrupt_error

MAX_FILE_BYTES = 1 << 30  # per file; a hundred times the largest file of the known datasets
MAX_TOTAL_BYTES = 1 << 36  # of all files in an archive
MAX_FILES = 4_000_000  # per archive
_BLOCK = tarfile.BLOCKSIZE
_READ_ERRORS = (
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
    path: Path, select: Callable[[str], bool] = lambda name: True, limit: int = MAX_FILE_BYTES
) -> Iterator[tuple[str, bytes]]:
    """Yield (name, content) of every regular file whose name ``select`` accepts.

    A folder is read in sorted order, an archive in stored order. Names are relative, with forward slashes. A link in a folder
    must point into the folder. An archive must not contain links.
    """
    if path.is_dir():
        for name in list_files(path):
            if select(name):
                yield name, (path / name).read_bytes()
        return
    reader = _walk_zip if path.suffix == ".zip" else _walk_tar
    try:
        yield from _limit_size(path, reader(path, select, limit))
    except CorruptDataError:
        raise
    except _READ_ERRORS as error:
        raise make_corrupt_error(path, f"a damaged archive ({error})", "a whole tar or zip archive") from error


def _limit_size(path: Path, members: Iterator[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    """Yield members; raise an error if their total size or number exceeds a limit, as a small archive may unpack to a huge one."""
    total = 0
    for count, (name, content) in enumerate(members, 1):
        total += len(content)
        if total > MAX_TOTAL_BYTES or count > MAX_FILES:
            raise make_corrupt_error(
                path, f"more than {MAX_TOTAL_BYTES} bytes or {MAX_FILES} files", "a smaller archive"
            )
        yield name, content


def extract(path: Path, target: Path, rename: Callable[[str], str | None] = lambda name: name) -> list[Path]:
    """Unpack an archive into the new folder ``target``, completely or not at all.

    ``rename`` maps the name of a member to its name below ``target``, or to None to skip it.
    """
    if target.exists():
        raise ValueError(f"target must not exist yet, got {target}")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        written = []
        for name, content in walk(path, lambda name: rename(name) is not None):
            relative = _check_member_name(path, str(rename(name)))
            (temporary / relative).parent.mkdir(parents=True, exist_ok=True)
            (temporary / relative).write_bytes(content)
            written.append(target / relative)
        temporary.chmod(0o755)
        os.rename(temporary, target)
        return written
    finally:
        shutil.rmtree(temporary, ignore_errors=True)  # does nothing after a successful rename


def check_inside(path: Path, root: Path) -> Path:
    """Return ``path`` if it lies in ``root`` after resolving all links; raise an error otherwise."""
    if not path.resolve().is_relative_to(root.resolve()):
        raise make_corrupt_error(path, f"a link out of the data root, to {path.resolve()}", f"a file inside {root}")
    return path


def list_files(root: Path, below: str = "") -> Iterator[str]:
    """Yield the names of the files in a folder and its subfolders, sorted. A link that leaves the folder is an error."""
    try:
        with os.scandir(root / below) as scanned:
            entries = sorted(scanned, key=lambda entry: entry.name)
    except OSError as error:
        raise DataError(f"the folder {root / below} cannot be read: {error.strerror or error}") from error
    for entry in entries:
        name = f"{below}/{entry.name}" if below else entry.name
        if entry.is_symlink():
            check_inside(root / name, root)
        if entry.is_dir(follow_symlinks=False):
            yield from list_files(root, name)
        elif entry.is_file():
            yield name
        elif entry.is_symlink():
            raise make_corrupt_error(
                root / name, "a link to a folder or to nothing", "files and folders without such links"
            )


def _check_member_name(archive: Path, name: str) -> PurePosixPath:
    """Return a member's name as a relative path; raise an error if it could leave the target folder on any platform."""
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
        raise make_corrupt_error(archive, f"a member named {name!r}", "relative names that stay inside the archive")
    return pure


def _check_member(archive: Path, name: str, is_regular: bool, size: int, limit: int) -> None:
    if not is_regular:
        raise make_corrupt_error(archive, f"the link or device file {name!r}", "regular files and folders only")
    if size > limit:
        raise make_corrupt_error(archive, f"{name!r} of {size} bytes", f"files of at most {limit}")


def _walk_tar(path: Path, select: Callable[[str], bool], limit: int) -> Iterator[tuple[str, bytes]]:
    with _open_decompressed(path) as raw:
        stream = _LastBlockReader(raw)
        with tarfile.open(fileobj=stream, mode="r:") as tar:  # type: ignore[call-overload]
            for member in tar:
                name = str(_check_member_name(path, member.name)) if member.name not in (".", "./") else "."
                if member.isdir():
                    continue
                _check_member(path, member.name, member.isreg(), member.size, limit)
                if select(name):
                    content = tar.extractfile(member)
                    assert content is not None
                    yield name, content.read()
                tar.members = []  # type: ignore[attr-defined]  # otherwise tarfile keeps all headers in memory
        # tarfile treats a damaged header as the end of the archive. A complete archive ends with a block of zeros. Reading the
        # remaining stream verifies the checksums of the compression.
        if stream.last != bytes(_BLOCK):
            raise make_corrupt_error(path, "no end mark after the last member", "a whole tar archive")
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


class _LastBlockReader:
    """A stream that keeps the last block read in ``last``."""

    def __init__(self, stream: io.BufferedIOBase):
        self.stream = stream
        self.last = b""

    def read(self, size: int = -1) -> bytes:
        self.last = self.stream.read(size)
        return self.last

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _walk_zip(path: Path, select: Callable[[str], bool], limit: int) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            name = str(_check_member_name(path, info.filename))
            if info.is_dir():
                continue
            is_regular = stat.S_IFMT(info.external_attr >> 16) in (0, stat.S_IFREG)
            _check_member(path, info.filename, is_regular, info.file_size, limit)
            if select(name):
                yield name, archive.read(info)
