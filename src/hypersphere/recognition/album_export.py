"""Exports of an album: a table, a folder per person, a gallery."""

import csv
import os
import re
import shutil
from pathlib import Path
from typing import Literal

from ..files import write_atomically
from .album import Album, Sample
from .gallery import Gallery

COLUMNS = ("path", "box", "group", "name")
FORBIDDEN_IN_FOLDERS = re.compile(r'[\x00-\x1f<>:"/\\|?*]')  # on some operating systems
MAX_FOLDER_NAME = 100


def export_table(album: Album, path: str | os.PathLike[str]) -> int:
    """Write a CSV table with the columns path, box, group and name, one row per sample; return the number of rows.

    ``box`` is ``x1 y1 x2 y2`` in pixels, empty for a whole picture. ``group`` and ``name`` are empty if there is none.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Album(f"{folder}/family.album") as album:
    ...     _ = album.add_features(torch.eye(2), ["1.jpg", "2.jpg"])
    ...     export_table(album, f"{folder}/groups.csv")
    2
    """
    names = _read_names(album)
    rows = [
        (one.path, _format_box(one), "" if one.group is None else one.group, names.get(one.group) or "")
        for one in album.samples()
    ]

    def write(temporary: str) -> None:
        with open(temporary, "w", newline="", encoding="utf-8", errors="surrogateescape") as file:
            table = csv.writer(file)
            table.writerow(COLUMNS)
            table.writerows(rows)

    write_atomically(path, write, private=True)
    return len(rows)


def export_folder(
    album: Album, folder: str | os.PathLike[str], how: Literal["link", "copy"] = "link", *, named_only: bool = False
) -> int:
    """Write one folder per group with its photographs, as symbolic links or copies; return the number of files.

    A photograph with several people is in the folder of each of them. Existing files are kept.

    Args:
        album: The album.
        folder: The folder for the folders of groups.
        how: ``"link"`` or ``"copy"``.
        named_only: Whether to skip groups without a name. Otherwise their folders are called ``group 7``.

    Raises:
        ValueError: If ``how`` is invalid.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Album(f"{folder}/family.album") as album:
    ...     export_folder(album, f"{folder}/people")
    0
    """
    if how not in ("link", "copy"):
        raise ValueError(f"how must be 'link' or 'copy', got {how!r}")
    names, written = _read_names(album), 0
    for one in album.samples():
        if one.group is None or not os.path.isfile(one.path) or (named_only and names[one.group] is None):
            continue
        target = Path(folder) / make_folder_name(names[one.group], one.group)
        target.mkdir(parents=True, exist_ok=True)
        written += _place_photograph(Path(one.path), target, how)
    return written


def export_gallery(album: Album, gallery: Gallery) -> dict[str, int]:
    """Enroll the named groups in a gallery of the same embedder and return the number of templates per person.

    Enrolling again replaces the templates of the same photographs.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Album(f"{folder}/family.album") as album:
    ...     _ = album.add_features(torch.ones(2, 3), ["1.jpg", "2.jpg"])
    ...     album.group(hs.evaluation.LogisticCalibration(slope=30.0, offset=-15.0))
    ...     _ = album.name(album.groups()[0].id, "ada")
    ...     with Gallery(f"{folder}/known.db") as gallery:
    ...         export_gallery(album, gallery)
    {'ada': 2}
    """
    names = _read_names(album)
    chosen = [one for one in album.samples() if one.group is not None and names[one.group] is not None]
    if not chosen:
        raise ValueError(f"the album {album.path} has no named group to export: name one first")
    people = [str(names[one.group]) for one in chosen]  # type: ignore[index]
    sources = [f"{one.path}#{_format_box(one)}" if one.box else one.path for one in chosen]
    gallery.enrol(people, album.features([one.id for one in chosen]), sources)
    return {name: people.count(name) for name in sorted(set(people))}


def make_folder_name(name: str | None, group: int) -> str:
    """Return a folder name for a group, valid on every file system.

    >>> make_folder_name("Ada / Lovelace", 3), make_folder_name(None, 3), make_folder_name("..", 3)
    ('Ada _ Lovelace', 'group 3', 'group 3')
    """
    text = FORBIDDEN_IN_FOLDERS.sub("_", name or "").strip(" .")[:MAX_FOLDER_NAME]
    return text or f"group {group}"


def _place_photograph(source: Path, target: Path, how: str) -> int:
    """Link or copy a photograph, and return the number of new files. Other photographs of the same name get a number."""
    for number in range(1, 10_000):
        path = target / (source.name if number == 1 else f"{source.stem} ({number}){source.suffix}")
        if path.is_symlink() or path.exists():
            if how == "link" and path.is_symlink() and os.readlink(path) == str(source):
                return 0
            if how == "copy" and path.is_file() and path.stat().st_size == source.stat().st_size:
                return 0
            continue
        if how == "link":
            path.symlink_to(source)
        else:
            write_atomically(path, lambda temporary: shutil.copyfile(source, temporary))
        return 1
    raise ValueError(f"{target} contains too many files called {source.name}")


def _read_names(album: Album) -> dict[int | None, str | None]:
    return {group.id: group.name for group in album.groups()}


def _format_box(sample: Sample) -> str:
    return "" if sample.box is None else " ".join(f"{value:g}" for value in sample.box)
