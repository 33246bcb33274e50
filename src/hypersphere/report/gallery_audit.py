"""The page of a gallery audit: every finding with its pictures."""

import os
import pathlib
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import UInt8
from torch import Tensor

from ..data import CorruptDataError
from ..data.preprocessing import eight_bit_pixels
from ..recognition._audit import Finding
from ._render import save
from .page_parts import Block, Grid, Note, Page, PageFacts, Pictures, Section, Tile
from .pictures_sheet import make_sheet

SHOWN_PER_KIND = 60  # findings of one kind with pictures
THUMBNAIL = 96  # pixels of the longer side
SHEET_BYTES = 2_500_000  # largest size of all pictures together
TITLES = {
    "outlier": "Unlike the person's other pictures",
    "duplicate": "Near-duplicates of another person",
    "poor quality": "Poor pictures",
    "missing picture": "Missing pictures",
}


def write_audit(findings: Sequence[Finding], count: int, gallery: str, path: str | os.PathLike[str]) -> pathlib.Path:
    """Write the page and return its path.

    Args:
        findings: The result of :func:`hypersphere.recognition.audit`.
        count: The number of templates in the gallery.
        gallery: The path of the gallery, for the title.
        path: The HTML file to write.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_audit([], 5, "people.db", f"{folder}/audit.html").name
    'audit.html'
    """
    pictures: dict[str, int] = {}
    thumbnails: list[Tensor] = []
    sections = [Section("summary", "Summary", _summarize(findings, count))]
    for kind, title in TITLES.items():
        own = [one for one in findings if one.kind == kind]
        if own:
            sections.append(Section(kind.replace(" ", "-"), title, _show_findings(own, pictures, thumbnails)))
    sheet = make_sheet(torch.stack(thumbnails), SHEET_BYTES) if thumbnails else None
    sheets = {} if sheet is None else {"pictures": sheet}
    return save(Page("Gallery audit", gallery, sections, sheets), path)


def _summarize(findings: Sequence[Finding], count: int) -> list[Block]:
    facts = [("templates", f"{count:,}", "in the gallery")]
    facts += [(title, str(sum(one.kind == kind for one in findings)), "templates") for kind, title in TITLES.items()]
    text = (
        "Check every finding before you change the gallery. Enrolling the right picture replaces a template, and forgetting a "
        "person removes all of that person's templates."
    )
    return [PageFacts(facts), Note(text if findings else "Nothing was found.")]


def _show_findings(findings: Sequence[Finding], pictures: dict[str, int], thumbnails: list[Tensor]) -> list[Block]:
    groups = []
    for one in findings[:SHOWN_PER_KIND]:
        tiles = []
        for name, source in ((one.identity, one.source), (one.other, one.other_source)):
            place = _find_thumbnail(source, pictures, thumbnails) if source else None
            if place is not None:
                tiles.append(Tile("pictures", place, f"{name}, {pathlib.Path(source).name}"))
        if tiles:
            groups.append((tiles, f"{one.identity}: {one.text}"))
    blocks: list[Block] = (
        [Pictures("The picture, and the nearest picture of another person if the finding is about two people", groups)]
        if groups
        else []
    )
    if len(findings) > SHOWN_PER_KIND:
        blocks.append(Note(f"{len(findings) - SHOWN_PER_KIND} more are in the table only."))
    rows = [[one.identity, str(one.number), one.source or "-", one.text] for one in findings]
    blocks.append(Grid("All of this kind", ["person", "template", "picture", "reason"], rows, folded=len(rows) > 10))
    return blocks


def _find_thumbnail(source: str, pictures: dict[str, int], thumbnails: list[Tensor]) -> int | None:
    """Return the position of a picture's thumbnail, None if it cannot be read."""
    if source not in pictures:
        try:
            thumbnail = _make_thumbnail(source)
        except (CorruptDataError, ValueError, OSError):
            return None
        pictures[source] = len(thumbnails)
        thumbnails.append(thumbnail)
    return pictures[source]


def _make_thumbnail(source: str) -> UInt8[Tensor, "side side 3"]:
    """Return a square thumbnail, with gray bars beside a picture that is not square."""
    pixels = eight_bit_pixels(source, None)
    pixels = pixels.expand(3, -1, -1) if pixels.shape[0] == 1 else pixels[:3]
    height, width = pixels.shape[1:]
    scale = THUMBNAIL / max(height, width)
    sides = (max(1, round(height * scale)), max(1, round(width * scale)))
    small = F.interpolate(pixels[None].float(), sides, mode="bilinear", antialias=scale < 1)[0].round().clamp(0, 255)
    result = torch.full((3, THUMBNAIL, THUMBNAIL), 128, dtype=torch.uint8)
    top, left = (THUMBNAIL - sides[0]) // 2, (THUMBNAIL - sides[1]) // 2
    result[:, top : top + sides[0], left : left + sides[1]] = small.to(torch.uint8)
    return result.permute(1, 2, 0)
