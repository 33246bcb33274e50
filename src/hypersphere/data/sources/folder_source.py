"""Files of pictures or recordings: a folder with one sub-folder per identity, or a single file."""

import os
from pathlib import Path
from typing import Any, Literal

from ..archive import check_inside, list_files
from ..errors import DataError, MissingDataError
from ..images import explain_ending, read_bytes
from ..media import MEDIA, SAMPLE_ENDINGS
from .source import PathSource, Record, summarize_unused

SPLIT_FOLDERS = {"train", "training", "val", "valid", "validation", "test", "testing"}


class FolderSource(PathSource):
    """Pictures or recordings in ``root/<identity>/…/<file>``, in sorted order.

    Files with an ending in :data:`~hypersphere.data.media.SAMPLE_ENDINGS` are used, except hidden files. If all top-level
    folders have names of splits (train, val, test, …), they are the splits, and identities are one level below. Links to
    files outside ``root`` are refused.

    Args:
        root: The folder.
        depth: Number of folder levels that name an identity: 1 for ``<person>/…``, 2 for ``<alphabet>/<character>/…``.
        loose: What to do with files directly in ``root``, whose label is the name of ``root``. "keep" uses them. "skip" uses
            them only if no sub-folder holds a file.

    Raises:
        MissingDataError: There is no such folder.
        DataError: The folder holds neither pictures nor recordings, or a file has fewer than ``depth`` folders above it.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for person in ("ann", "bob"):
    ...         pathlib.Path(folder, person).mkdir()
    ...         _ = pathlib.Path(folder, person, "1.pgm").write_bytes(b"P5 2 2 255 1234")
    ...     FolderSource(folder).classes, FolderSource(folder).sample(1).size
    (('ann', 'bob'), (2, 2))
    """

    description = "a folder"
    is_general = True

    def __init__(self, root: str | os.PathLike[str], depth: int = 1, *, loose: Literal["skip", "keep"] = "skip"):
        if depth < 1:
            raise ValueError(f"depth must be an integer ≥ 1, got {depth!r}")
        self.root = Path(root)
        if not self.root.is_dir():
            raise MissingDataError(f"there is no folder {self.root}")
        names = [name.split("/") for name in list_files(self.root) if is_sample(name)]
        if not names:
            known = " and no ".join(f"{medium.noun} ({' '.join(medium.endings)})" for medium in reversed(MEDIA))
            others = summarize_unused(self._find_unused(set()))
            raise DataError(f"the folder {self.root} holds no {known}{f'; it holds {others}' if others else ''}")
        nested = [parts for parts in names if len(parts) > 1]
        has_splits = bool(nested) and all(parts[0].lower() in SPLIT_FOLDERS for parts in nested)
        first = 1 if has_splits else 0  # position of the identity in a path
        shallow = next((parts for parts in nested if len(parts) <= depth + first), None)
        if shallow is not None:
            file = self.root / "/".join(shallow)
            levels = "1 level" if depth == 1 else f"{depth} levels"
            raise DataError(f"{file} must lie below {levels} of folders that name its identity")
        used = names if loose == "keep" or not nested else nested
        own_name = self.root.absolute().name
        records = []
        for parts in used:
            path, is_nested = str(self.root / "/".join(parts)), len(parts) > 1
            label = "/".join(parts[first : first + depth]) if is_nested else own_name
            records.append(Record(path, label, split=parts[0] if is_nested and has_splits else None))
        super().__init__(str(self.root), records)
        if not nested:
            self.advice = "; put the files of each identity into a sub-folder of its own"

    @classmethod
    def recognizes(cls, source: Any) -> bool:
        """Return whether ``source`` is a folder."""
        return isinstance(source, Path) and source.is_dir()

    def fetch(self, index: int) -> bytes:
        """Return the content of the file."""
        return read_bytes(check_inside(Path(self.records[index].name), self.root))

    def find_unused(self) -> dict[str, tuple[str, ...]]:
        """Return unused files and empty folders, grouped by the reason why they are not used.

        The reasons are other file formats, by ending, and files beside the folders of identities. Hidden files are not listed.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pathlib.Path(folder, "ann").mkdir()
        ...     _ = pathlib.Path(folder, "ann", "1.pgm").write_bytes(b"P5 2 2 255 1234")
        ...     _ = pathlib.Path(folder, "ann", "2.mp4").write_bytes(b"")
        ...     {why: len(names) for why, names in FolderSource(folder).find_unused().items()}
        {'files with the ending .mp4': 1}
        """
        return self._find_unused({record.name for record in self.records})

    def _find_unused(self, used: set[str]) -> dict[str, tuple[str, ...]]:
        unused: dict[str, list[str]] = {}
        for name in list_files(self.root):
            path = str(self.root / name)
            if path in used or any(part.startswith(".") for part in name.split("/")):
                continue
            why = "files beside the folders of identities" if is_sample(name) else _describe_ending(Path(name).suffix)
            unused.setdefault(why, []).append(path)
        tree = os.walk(self.root)
        empty = [folder for folder, below, files in tree if not (below or files) and Path(folder) != self.root]
        if empty:
            unused["empty folders"] = sorted(empty)
        return {why: tuple(names) for why, names in unused.items()}


class FileSource(PathSource):
    """One picture or recording; its label is the name of its folder.

    Args:
        path: The file.

    Raises:
        MissingDataError: There is no such file.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pathlib.Path(folder, "ann").mkdir()
    ...     _ = pathlib.Path(folder, "ann", "1.pgm").write_bytes(b"P5 2 2 255 1234")
    ...     hs.data.open_source(f"{folder}/ann/1.pgm", identities=1).classes
    ('ann',)
    """

    description = "the file of a picture or recording"
    endings = SAMPLE_ENDINGS

    def __init__(self, path: str | os.PathLike[str]):
        if not Path(path).is_file():
            raise MissingDataError(f"there is no file {path}")
        super().__init__(str(path), [Record(str(path), Path(path).absolute().parent.name)])


def is_sample(name: str) -> bool:
    """Return whether a relative path has the ending of a picture or recording and no part of it is hidden.

    >>> is_sample("ann/1.JPG"), is_sample("ann/1.flac"), is_sample("ann/.thumbs/1.jpg"), is_sample("notes.txt")
    (True, True, False, False)
    """
    return name.lower().endswith(SAMPLE_ENDINGS) and not any(part.startswith(".") for part in name.split("/"))


def _describe_ending(ending: str) -> str:
    if not ending:
        return "files with no ending"
    remedy = explain_ending(ending)
    return f"files with the ending {ending.lower()}{f', {remedy}' if remedy else ''}"
