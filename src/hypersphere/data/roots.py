"""Data roots, and the folder of a dataset below one of them."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .archive import check_inside, walk
from .catalog import CATALOG, Entry
from .errors import CorruptDataError, MissingDataError, make_corrupt_error
from .images import decode_image

VARIABLE = "HYPERSPHERE_DATA"
Root = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None


def data_roots(root: Root = None) -> tuple[Path, ...]:
    """Return the folders that are searched for datasets, in order.

    These are ``root``; without it, the folders in the environment variable ``HYPERSPHERE_DATA`` (separated as in ``PATH``); without
    the variable, :func:`get_user_cache`.

    >>> data_roots("datasets")[0].name
    'datasets'
    """
    if root is None:
        folders = [Path(folder).expanduser() for folder in os.environ.get(VARIABLE, "").split(os.pathsep) if folder]
        return tuple(folders) or (get_user_cache(),)
    if isinstance(root, (str, os.PathLike)):
        return (Path(root),)
    return tuple(map(Path, root))


def get_user_cache() -> Path:
    """Return ``hypersphere`` in the user's cache folder (``$XDG_CACHE_HOME`` or ``~/.cache``)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hypersphere"


@dataclass(frozen=True)
class Folder:
    """The folder of a dataset and its entry in the catalog. Nothing outside the folder is read.

    A name that ends in a slash is the name of a folder, any other name that of a file, here and in the catalog.
    """

    entry: Entry
    path: Path

    def find_file(self, *names: str) -> Path | None:
        """Return the first of these files that exists."""
        for name in names:
            if _exists(self.path, name):
                with self._with_remedy():
                    return check_inside(self.path / name, self.path)
        return None

    def get_file(self, *names: str) -> Path:
        """Return the first of these files that exists; raise an error that names them if there is none."""
        found = self.find_file(*names)
        if found is None:
            raise MissingDataError(f"{self.path} holds no {' or '.join(names)}; {self.entry.remedy}")
        return found

    def walk(self, path: Path, select: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
        """Yield the members of one of the files or folders, as :func:`archive.walk` does."""
        with self._with_remedy():
            yield from walk(path, select)

    def decode(
        self,
        content: bytes,
        where: Path | str,
        mode: Literal["RGB", "L"] = "RGB",
        shape: tuple[int, int] | None = None,
    ) -> Any:
        """Decode a PNG or JPEG image in one of the files, as :func:`images.decode_image` does."""
        with self._with_remedy():
            return decode_image(content, str(where), mode, shape, formats=("PNG", "JPEG"))

    def make_corrupt_error(self, path: Path | str, found: str, expected: str) -> CorruptDataError:
        """Return the error for one of the files, with instructions to download the dataset again."""
        return make_corrupt_error(path, found, expected, self.entry.remedy)

    @contextmanager
    def _with_remedy(self) -> Iterator[None]:
        try:
            yield
        except CorruptDataError as error:
            raise CorruptDataError(f"{error}; {self.entry.remedy}") from error


def locate(name: str, root: Root = None) -> Folder | None:
    """Return the dataset's folder in the first root that has it, if any. A root may be the folder of the dataset itself."""
    entry = CATALOG[name]
    for top in data_roots(root):
        for below in (*entry.folders, "."):
            if any(_exists(top / below, mark) for mark in entry.marks):
                return Folder(entry, check_inside(top / below, top))
    return None


def find_folder(name: str, root: Root = None) -> Folder:
    """Return the dataset's folder; the error lists the searched folders and how to get the dataset."""
    found = locate(name, root)
    if found is not None:
        return found
    entry = CATALOG[name]
    searched = ", ".join(str(top / entry.folders[0]) for top in data_roots(root))
    how = f"get it with `hypersphere data get {name}`" if entry.sources else entry.note
    raise MissingDataError(
        f"{name} is not in {searched}: expected {' or '.join(entry.marks[:3])} …; {how} (data roots: {VARIABLE})"
    )


def _exists(folder: Path, name: str) -> bool:
    """Return whether a file or folder of this name exists; links count and are checked when they are opened."""
    path = folder / name
    return path.is_symlink() or (path.is_dir() if name.endswith("/") else path.is_file())
