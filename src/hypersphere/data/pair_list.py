"""Read pairs of image files to verify from a text file: LFW's ``pairs.txt``, or lines of two paths and 0 or 1."""

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from .errors import CorruptDataError, MissingDataError
from .media import SAMPLE_ENDINGS
from .sources.source import PathSource, Record


class PairSource(PathSource):
    """The images of a list of pairs, each once. The label is the first folder level below ``root``.

    An image directly in ``root``, or outside it, is labeled with the name of its folder.
    """

    def __init__(self, name: str, files: list[Path], root: Path):
        super().__init__(name, [Record(str(file), _get_identity(file, root)) for file in files])


@dataclass(frozen=True, eq=False)
class PairList:
    """Pairs ``index`` (n, 2) of the records of ``source``, whether each is of the ``same`` identity, and its ``fold``.

    ``fold`` is None if the list has no folds.
    """

    source: PairSource
    index: Int[Tensor, "n 2"]
    same: Bool[Tensor, "n"]
    fold: Int[Tensor, "n"] | None


def read_pair_list(path: str | os.PathLike[str], root: str | os.PathLike[str] | None = None) -> PairList:
    """Read pairs of image files.

    There are two formats. In LFW's format, the first line has the number of folds and the number of pairs per fold (or only
    the number of pairs). It is followed by lines ``name n m`` for pairs of one person and ``name n other m`` for pairs of two
    people. The images are ``name/name_0001.jpg``, possibly with another ending. In the other format, each line is
    ``path path 1`` or ``path path 0``, separated by tabs, commas or blanks.

    Args:
        path: The text file.
        root: The folder that paths are relative to; by default that of the text file.

    Raises:
        DataError: If a line is invalid or an image is missing. The message names it.
    """
    file = Path(path)
    if not file.is_file():
        raise MissingDataError(f"there is no file {file}")
    folder = file.parent if root is None else Path(root)
    if not folder.is_dir():
        raise MissingDataError(f"there is no folder {folder}")
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise CorruptDataError(f"{file} is no text file: {error}") from error
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise CorruptDataError(f"{file} holds no pair")
    header = lines[0][1].split()
    if len(header) <= 2 and all(word.isdecimal() for word in header):
        rows, fold = _parse_lfw(file, folder, lines[1:], [int(word) for word in header])
    else:
        rows, fold = [_parse_plain_line(file, folder, number, line) for number, line in lines], None
    number = {name: i for i, name in enumerate(dict.fromkeys(name for row in rows for name in row[:2]))}
    for name in number:
        if not name.is_file():
            raise MissingDataError(f"there is no image {name}, which {file} names; root= says where they are")
    index = torch.tensor([[number[first], number[second]] for first, second, _ in rows])
    same = torch.tensor([row[2] for row in rows])
    if same.all() or not same.any():
        raise CorruptDataError(
            f"{file} must hold pairs of one identity and of two, got {int(same.sum())} of {len(same)}"
        )
    return PairList(PairSource(str(file), list(number), folder), index, same, fold)


Row = tuple[Path, Path, bool]


def _get_identity(file: Path, root: Path) -> str:
    below = file.relative_to(root).parts if file.is_relative_to(root) else ()
    return below[0] if len(below) > 1 else file.absolute().parent.name


def _parse_plain_line(file: Path, root: Path, number: int, line: str) -> Row:
    mark = next((mark for mark in ("\t", ",") if line.count(mark) >= 2), None)
    words = [word.strip() for word in line.split(mark)]
    if len(words) != 3 or words[2] not in ("0", "1"):
        raise CorruptDataError(f"{file}, line {number}: two paths and 0 or 1 are needed, got {line.strip()[:80]!r}")
    return root / words[0], root / words[1], words[2] == "1"


def _parse_lfw(
    file: Path, root: Path, lines: list[tuple[int, str]], header: list[int]
) -> tuple[list[Row], Int[Tensor, "n"] | None]:
    folds, each = header if len(header) == 2 else (1, *header)
    if not lines or len(lines) != 2 * folds * each:
        expected = f"{2 * folds * each} pairs for {folds} folds of {each} + {each}"
        raise CorruptDataError(f"{file} must hold {expected}, got {len(lines)}")
    rows = []
    for number, line in lines:
        words = line.split("\t") if "\t" in line else line.split()
        if len(words) not in (3, 4):
            raise CorruptDataError(f"{file}, line {number}: a name and two numbers, or two of each, got {line[:80]!r}")
        first, second = (words[0], words[1]), (words[-2] if len(words) == 4 else words[0], words[-1])
        rows.append((_find_face(file, root, number, *first), _find_face(file, root, number, *second), len(words) == 3))
    fold = torch.arange(folds).repeat_interleave(2 * each) if folds > 1 else None
    return rows, fold


def _find_face(file: Path, root: Path, number: int, name: str, image: str) -> Path:
    """Return ``name/name_0001`` with the ending of the existing file, or LFW's own ending if there is none."""
    if not image.strip().isdecimal():
        raise CorruptDataError(f"{file}, line {number}: the number of an image is needed, got {image!r}")
    stem = root / name / f"{name}_{int(image):04d}"
    paths = (stem.with_name(stem.name + ending) for ending in (".jpg", *SAMPLE_ENDINGS))
    return next((path for path in paths if path.is_file()), stem.with_name(f"{stem.name}.jpg"))
