"""The report page of the demo: the page of the fit with the gallery's answers and the comparison of four heads."""

import os
import pathlib
import shlex
from collections.abc import Sequence

import numpy as np
import torch

from ..._extras import require
from ...recognition import Calibration
from ...report import Commands, Grid, Note, Page, Pictures, Section, Sheet, Tile, read_runs, save
from ...report.pages import MAX_PICTURE_BYTES, make_run_page
from ...report.pictures_sheet import make_sheet
from ...training import Run
from .four_heads import COLUMNS, HeadResult
from .letter_gallery import ENROLLED, FIT, FPIR, STRANGERS, Answers, Probe

SHEET = "new"
SHOWN_PER_GROUP = 12
ANSWER_COLUMNS = ("letters", "different letters", "pictures", "named correctly", "named wrongly", "unknown")


def write_demo_page(
    path: pathlib.Path,
    run: Run,
    answers: Sequence[Answers],
    probes: Sequence[Probe],
    calibration: Calibration,
    heads: Sequence[HeadResult],
) -> pathlib.Path:
    """Write the page and return its path.

    Args:
        path: The file to write.
        run: The fit of the letters.
        answers: The answers of the gallery by group of letters.
        probes: The pictures that the gallery identified.
        calibration: The threshold of the gallery.
        heads: The comparison of four heads.
    """
    page = make_run_page(read_runs([run.folder]), [os.fspath(run.folder)])
    examples = [probe for script in (ENROLLED, STRANGERS) for probe in _choose_examples(script, probes)]
    image = require("PIL.Image")
    pictures = torch.from_numpy(np.stack([np.array(image.open(probe.file)) for probe in examples]))[..., None]
    sheet = make_sheet(pictures, MAX_PICTURE_BYTES // 4)
    sheets: dict[str, Sheet] = {**page.sheets, **({SHEET: sheet} if sheet is not None else {})}
    first, *rest = page.sections
    gallery = _describe_gallery(path.parent, answers, examples if sheet is not None else [], calibration)
    about = (
        "The network was trained on Latin, Greek and Cyrillic letters. All figures are about Georgian and Armenian "
        "letters, which were not in the training set."
    )
    return save(
        Page("Letters of unseen alphabets", about, [first, gallery, _describe_heads(heads), *rest], sheets), path
    )


def format_answers(answers: Answers) -> list[str]:
    """Return the row of one group of letters in the table of answers.

    >>> format_answers(Answers("Armenian, new strangers", 23, 276, 0, 21, 255))
    ['Armenian, new strangers', '23', '276', '–', '21', '255']
    """
    right = "–" if answers.group.lower().startswith(STRANGERS) else str(answers.right)
    return [answers.group, str(answers.letters), str(answers.pictures), right, str(answers.wrong), str(answers.unknown)]


def format_head(result: HeadResult) -> list[str]:
    """Return the row of one head in the table of heads: its name and the columns of ``COLUMNS``."""
    return [result.name, *(f"{result.row[key]:.{4 if key == 'fisher' else 1}f}" for key in COLUMNS)]


def list_commands(folder: str | os.PathLike[str]) -> list[str]:
    """Return the command lines that repeat the demo.

    >>> list_commands("runs/demo")[1]
    'hypersphere gallery enrol runs/demo/mine.db runs/demo/fit/embedder.safetensors runs/demo/known'
    """
    top = pathlib.Path(folder)
    gallery = [str(top / "mine.db"), str(top / "fit" / "embedder.safetensors")]
    new = [str(file) for file in sorted((top / "new").glob("*/11.png"))]
    examples = [
        next((file for file in new if f"/{script}" in file), f"{top}/new/PICTURE") for script in (ENROLLED, STRANGERS)
    ]
    lines = [
        ["fit", str(top / "letters.npz"), "-o", str(top / "fit"), *FIT],
        ["gallery", "enrol", *gallery, str(top / "known")],
        ["gallery", "calibrate", *gallery, str(top / "strangers"), f"--fpir={FPIR:g}"],
        ["gallery", "identify", *gallery, *examples],
    ]
    return [shlex.join(["hypersphere", *line]) for line in lines]


def _choose_examples(script: str, probes: Sequence[Probe]) -> list[Probe]:
    """Return at most ``SHOWN_PER_GROUP`` probes of one script, spread over its letters."""
    of_script = [probe for probe in probes if probe.letter.startswith(script)]
    return of_script[:: max(1, len(of_script) // SHOWN_PER_GROUP)][:SHOWN_PER_GROUP]


def _describe_gallery(
    folder: pathlib.Path, answers: Sequence[Answers], examples: Sequence[Probe], calibration: Calibration
) -> Section:
    note = Note(
        f"The threshold, a cosine of {calibration.threshold:.3f}, was chosen with {calibration.people} Armenian letters for a "
        f"rate of {FPIR:.0%} accepted strangers. The strangers in the table are other Armenian letters; with few letters "
        "their rate can differ from the chosen one by chance."
    )
    grid = Grid("Answers of the gallery", ANSWER_COLUMNS, [format_answers(group) for group in answers], numeric=True)
    tiles = [([Tile(SHEET, position, probe.letter)], _describe_probe(probe)) for position, probe in enumerate(examples)]
    pictures = [Pictures("Some of the pictures, with the answer and the cosine", tiles)] if tiles else []
    return Section(
        "gallery", "Known and unknown letters", [grid, note, *pictures, Commands("Try it", list_commands(folder))]
    )


def _describe_probe(probe: Probe) -> str:
    name = probe.match.identity if probe.match.accepted else "unknown"
    return f"{probe.letter}: {name} ({probe.match.score:.2f})"


def _describe_heads(heads: Sequence[HeadResult]) -> Section:
    rows = [format_head(head) for head in heads]
    grid = Grid("Ten handwritten digits, features in three dimensions", ["head", *COLUMNS.values()], rows, numeric=True)
    note = Note(
        "An angular margin makes each class compact and moves classes apart. heads.html beside this page shows the features "
        "on the sphere and the training curves."
    )
    return Section("heads", "Four heads compared", [grid, note])
