"""Letters of five scripts, rendered from the typefaces that come with matplotlib: real shapes without a network."""

import functools
import pathlib
import unicodedata
from collections.abc import Sequence

import numpy as np
import torch

from .._extras import require
from .in_memory import InMemory

SCRIPTS: dict[str, tuple[range, ...]] = {
    "latin": (range(0x41, 0x5B), range(0x61, 0x7B), range(0xC0, 0x180)),
    "greek": (range(0x391, 0x3AA), range(0x3B1, 0x3CA)),
    "cyrillic": (range(0x400, 0x460),),
    "georgian": (range(0x10D0, 0x10F1),),
    "armenian": (range(0x531, 0x557), range(0x561, 0x587)),
}
FAMILIES = ("DejaVuSans", "DejaVuSansMono", "DejaVuSerif", "STIXGeneral")
MIN_TYPEFACES = 10  # letters in fewer typefaces are left out
SAME_PICTURE = 0.995  # cosine of the ink of two pictures above which they look the same
SAME_LETTER = 0.25  # share of typefaces in which two letters must look the same to count as one class


class Letters(InMemory):
    """Letters in 12 to 16 typefaces each, dark on white, uint8 ``(n, 1, size, size)``.

    Letters that look the same are one class, within a script and across scripts: the Latin A, the Greek Alpha and
    the Cyrillic А, for example. A class is named after its first letter. DejaVu (sans, mono and serif, each upright,
    oblique, bold and bold oblique) contains all five scripts, and STIX (four typefaces) the first three.

    Args:
        scripts: Any of ``latin``, ``greek``, ``cyrillic``, ``georgian`` and ``armenian``.
        size: Height and width in pixels.

    Raises:
        ValueError: If a script is unknown or the size is too small to tell letters apart.
        ImportError: If matplotlib or Pillow is missing.

    >>> letters = Letters(["georgian"])
    >>> letters.data.shape, len(letters.classes), letters.classes[0]
    (torch.Size([396, 1, 28, 28]), 33, 'GEORGIAN LETTER AN')
    """

    def __init__(self, scripts: Sequence[str] = ("latin", "greek", "cyrillic"), size: int = 28):
        unknown = [name for name in scripts if name not in SCRIPTS]
        if unknown or not scripts:
            raise ValueError(f"scripts must be some of {', '.join(SCRIPTS)}, got {', '.join(unknown) or 'none'}")
        if size < 8:
            raise ValueError(f"size must be at least 8 pixels, got {size}")
        codes = [code for name in scripts for part in SCRIPTS[name] for code in part]
        codes = [code for code in codes if unicodedata.category(chr(code)).startswith("L")]
        files = [file for file in find_typefaces() if set(codes) & _read_characters(file)]
        pictures: dict[int, list[np.ndarray]] = {code: [] for code in codes}
        for file in files:
            for code in sorted(set(codes) & _read_characters(file)):
                pictures[code].append(render_letter(chr(code), file, size))
        kept = [code for code in codes if len(pictures[code]) >= MIN_TYPEFACES]
        classes = _merge_same_shapes([pictures[code] for code in kept])
        numbers = {first: number for number, first in enumerate(dict.fromkeys(classes))}
        labels = [numbers[first] for first, code in zip(classes, kept, strict=True) for _ in pictures[code]]
        data = np.stack([picture for code in kept for picture in pictures[code]])
        super().__init__(
            torch.from_numpy(data)[:, None],
            torch.tensor(labels),
            tuple(unicodedata.name(chr(kept[first])) for first in numbers),
        )


def find_typefaces() -> list[pathlib.Path]:
    """Return the files of the typefaces that come with matplotlib and contain several scripts, the plain one first.

    >>> find_typefaces()[0].name
    'DejaVuSans.ttf'
    """
    folder = pathlib.Path(require("matplotlib").get_data_path(), "fonts", "ttf")
    files = [file for family in FAMILIES for file in folder.glob(f"{family}*.ttf") if "Display" not in file.name]
    return sorted(set(files), key=lambda file: (file.stem != "DejaVuSans", file.name))


def render_letter(letter: str, file: pathlib.Path, size: int) -> np.ndarray:
    """Render one letter in the middle of a square.

    Args:
        letter: One character.
        file: A TrueType file that contains it.
        size: Height and width of the picture in pixels.

    Returns:
        A uint8 picture, 255 where there is paper.

    >>> picture = render_letter("A", find_typefaces()[0], 28)
    >>> picture.shape, int(picture.max()), bool((picture < 128).any())
    ((28, 28), 255, True)
    """
    picture = require("PIL.Image").new("L", (size, size), 255)
    drawing = require("PIL.ImageDraw").Draw(picture)
    drawing.text((size / 2, 0.72 * size), letter, fill=0, font=_open_font(file, round(0.66 * size)), anchor="ms")
    return np.array(picture)


@functools.lru_cache(maxsize=64)
def _open_font(file: pathlib.Path, points: int) -> object:
    return require("PIL.ImageFont").truetype(str(file), points)


@functools.lru_cache(maxsize=64)
def _read_characters(file: pathlib.Path) -> frozenset[int]:
    return frozenset(require("matplotlib.ft2font").FT2Font(str(file)).get_charmap())


def _merge_same_shapes(letters: Sequence[Sequence[np.ndarray]]) -> list[int]:
    """Return the index of the first letter with the same shape, for each letter, given as its pictures in all typefaces.

    Typefaces have the same order for all letters, so the n-th pictures of two letters show the same typeface if both letters
    are in the first n typefaces.
    """
    typefaces = min(len(pictures) for pictures in letters)
    same = np.zeros((len(letters), len(letters)))  # number of typefaces in which two letters look the same
    for typeface in range(typefaces):
        ink = np.stack([255.0 - pictures[typeface].ravel() for pictures in letters])
        ink /= np.linalg.norm(ink, axis=1, keepdims=True).clip(min=1e-9)
        same += ink @ ink.T >= SAME_PICTURE
    first = list(range(len(letters)))
    for letter, row in enumerate(same >= SAME_LETTER * typefaces):
        first[letter] = first[int(row.argmax())]  # the earlier letter may itself look like an even earlier one
    return first
