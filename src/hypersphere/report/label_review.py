"""A page for reviewing labels: suspicious samples beside samples of their own label and of the label that they resemble."""

import os
import pathlib
from collections.abc import Callable

import torch
from torch import Tensor

from ..evaluation import thumbnails
from ..recognition.label_check import LabelReport
from ._render import save
from .page_parts import Block, Grid, Note, Page, PageFacts, Pictures, Section, Sheet, Tile
from .pictures_sheet import make_sheet

MAX_SHOWN = 120  # suspicious samples with pictures
SHEET_BYTES = 1_500_000  # largest size of all pictures together
SIDE = 64  # pixels of a picture


def write_label_review(
    report: LabelReport,
    path: str | os.PathLike[str],
    title: str,
    load: Callable[[int], Tensor] | None = None,
) -> pathlib.Path:
    """Write the page and return its path.

    Args:
        report: The findings.
        path: The file to write.
        title: The name of the data.
        load: Returns the picture of a sample in the input size of the network, 8 bits, (channels, h, w). Without it the page
            contains no pictures.

    >>> import tempfile
    >>> report = LabelReport(("1.png",), ("ann",), (), (), ())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_label_review(report, f"{folder}/review.html", "people").name
    'review.html'
    """
    sheets: dict[str, Sheet] = {}
    tile = _collect_pictures(report, load, sheets)
    wrong = report.suspicions[:MAX_SHOWN]
    groups = [
        (
            [Tile("samples", tile[i], report.names[i]) for i in _select_shown(report, one.sample) if i in tile],
            f"{report.names[one.sample]}: {one.label}, {one.probability:.0%} wrong"
            + (f", looks like {one.better}" if one.better else ""),
        )
        for one in wrong
    ]
    shown: list[Block] = [
        Note("Each group shows the sample, samples of its label, and samples of the label that it resembles.")
    ]
    shown += [Pictures("Labels that may be wrong, the most certain first", groups)] if tile else []
    rows = [
        [report.names[one.sample], one.label, one.better or "–", f"{one.probability:.0%}"] for one in report.suspicions
    ]
    shown.append(Grid("All suspicious labels", ["sample", "label", "looks like", "wrong"], rows, folded=bool(tile)))
    facts = [
        ("labels that may be wrong", str(len(report.suspicions)), f"of {len(report.names)}"),
        ("labels that may be one identity", str(len(report.same_identity)), "pairs"),
        ("near-duplicates", str(len(report.duplicates)), "pairs"),
    ]
    pairs = [[a, b, f"{chance:.0%}"] for a, b, chance in report.same_identity]
    twins = [
        [report.names[a], report.labels[a], report.names[b], report.labels[b], f"{cosine:.4f}"]
        for a, b, cosine in report.duplicates
    ]
    sections = [
        Section("summary", "Summary", [PageFacts(facts)]),
        Section("labels", "Suspicious labels", shown),
        Section(
            "people", "One identity under two labels", [Grid("Pairs of labels", ["label", "label", "same"], pairs)]
        ),
        Section("twins", "Near-duplicates", [Grid("Pairs", ["sample", "label", "sample", "label", "cosine"], twins)]),
    ]
    return save(
        Page(
            f"Labels of {title}",
            "Found by the features of an embedder. Check each case before you delete anything.",
            sections,
            sheets,
        ),
        path,
    )


def _select_shown(report: LabelReport, sample: int) -> list[int]:
    """Return the sample, two others of its label, and two of the label that it resembles."""
    one = next(found for found in report.suspicions if found.sample == sample)
    wrong = {found.sample for found in report.suspicions}
    own = [i for i, label in enumerate(report.labels) if label == one.label and i not in wrong][:2]
    better = [i for i, label in enumerate(report.labels) if label == one.better and i not in wrong][:2]
    return [sample, *own, *better]


def _collect_pictures(
    report: LabelReport, load: Callable[[int], Tensor] | None, sheets: dict[str, Sheet]
) -> dict[int, int]:
    """Put the shown pictures on one sheet, and return the position of each sample."""
    if load is None or not report.suspicions:
        return {}
    shown = dict.fromkeys(i for one in report.suspicions[:MAX_SHOWN] for i in _select_shown(report, one.sample))
    small = thumbnails(torch.stack([load(i) for i in shown]), SIDE)
    sheet = None if small is None else make_sheet(small, SHEET_BYTES)
    if sheet is None:
        return {}
    sheets["samples"] = sheet
    return {sample: position for position, sample in enumerate(shown)}
