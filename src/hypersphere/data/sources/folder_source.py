"""A folder that holds a folder of images for each identity."""

import os
from pathlib import Path

from ..archive import inside, names_in
from ..errors import DataError, MissingDataError
from ..images import ENDINGS, read_bytes
from .source import Record, Source

SPLITS = {"train", "training", "val", "valid", "validation", "test", "testing"}


class FolderSource(Source):
    """``root/<identity>/…/<image>``: identities and images in sorted order, of every ending in :data:`images.ENDINGS`.

    ``depth`` says how many levels of folders name an identity: 1 for ``<person>/…``, 2 for ``<alphabet>/<character>/…``. Where
    the folders at the top are all called like splits (train, val, test, …), they are the splits, and identities lie below.
    Hidden files are left out. Nothing outside ``root`` is read, not even through a link.

    Raises:
        MissingDataError: if there is no such folder.
        DataError: if it holds no image, no folder of an identity, or an image above the levels that ``depth`` counts.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for person in ("ann", "bob"):
    ...         pathlib.Path(folder, person).mkdir()
    ...         _ = pathlib.Path(folder, person, "1.pgm").write_bytes(b"P5 2 2 255 1234")
    ...     FolderSource(folder).classes, FolderSource(folder).image(1).size
    (('ann', 'bob'), (2, 2))
    """

    def __init__(self, root: str | os.PathLike[str], depth: int = 1):
        if depth < 1:
            raise ValueError(f"depth must be an integer ≥ 1, got {depth!r}")
        self.root = Path(root)
        if not self.root.is_dir():
            raise MissingDataError(f"there is no folder {self.root}")
        names = [name for name in names_in(self.root) if _is_image(name)]
        if not names:
            raise DataError(f"the folder {self.root} holds no image ({' '.join(ENDINGS)})")
        parts = [name.split("/") for name in names if "/" in name]
        if not parts:
            raise DataError(f"the folder {self.root} holds images but no sub-folder for each identity")
        divided = all(part[0].lower() in SPLITS for part in parts)
        skip = 1 if divided else 0
        shallow = next((part for part in parts if len(part) <= depth + skip), None)
        if shallow is not None:
            path = self.root / "/".join(shallow)
            raise DataError(f"{path} lies above the {depth} levels of folders that name an identity")
        records = [
            Record(
                str(self.root / "/".join(part)),
                "/".join(part[skip : skip + depth]),
                split=part[0] if divided else None,
            )
            for part in parts
        ]
        super().__init__(str(self.root), records)

    def fetch(self, index: int) -> bytes:
        """The content of the file."""
        return read_bytes(inside(Path(self.records[index].name), self.root))

    def files(self) -> list[str]:
        """One for each record."""
        return [record.name for record in self.records]


def _is_image(name: str) -> bool:
    return name.lower().endswith(ENDINGS) and not any(part.startswith(".") for part in name.split("/"))
