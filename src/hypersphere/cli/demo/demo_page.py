"""The demonstration's report page: that of the fit, with the gallery's answers and the table of heads in it."""

import os
import pathlib
import shlex
from collections.abc import Sequence

from ...data import Digits
from ...evaluation import thumbnails
from ...report import Commands, Grid, Note, Page, Pictures, Section, Sheet, Tile, read_runs, save
from ...report.pages import PICTURES, run_page
from ...report.pictures_sheet import sheet_of
from ...training import Run
from .digit_gallery import FPIR, KNOWN, SHOWN_BEFORE, STRANGERS, DigitAnswers, Probe
from .four_heads import COLUMNS, HeadResult

SHEET = "new"
SHOWN = 2  # pictures of a digit


def write_demo_page(
    path: pathlib.Path,
    run: Run,
    answers: Sequence[DigitAnswers],
    probes: Sequence[Probe],
    threshold: float,
    heads: Sequence[HeadResult],
) -> pathlib.Path:
    """Write the page and return its path: the fit's sections, and after the first the gallery's and the heads'."""
    made = run_page(read_runs([run.folder]), [os.fspath(run.folder)])
    pictures = thumbnails(Digits(train=False).data)
    sheet = None if pictures is None else sheet_of(pictures, PICTURES // 4)
    sheets: dict[str, Sheet] = {**made.sheets, **({SHEET: sheet} if sheet is not None else {})}
    first, *rest = made.sections
    sections = [first, _gallery(path.parent, answers, probes, threshold, sheet is not None), _heads(heads), *rest]
    about = (
        f"Digits: {', '.join(KNOWN)} are learned and enrolled; {', '.join(STRANGERS)} are strangers, and every figure of the fit "
        "is about these."
    )
    return save(Page("The main road on the digits", about, sections, sheets), path)


def answer_row(answers: DigitAnswers) -> list[str]:
    """Return a digit's row of the table of answers.

    >>> answer_row(DigitAnswers("8", "new stranger", 34, 0, 4, 30))
    ['8', 'new stranger', '34', '–', '4', '30']
    """
    right = str(answers.right) if answers.digit in KNOWN else "–"
    return [answers.digit, answers.role, str(answers.pictures), right, str(answers.wrong), str(answers.unknown)]


ANSWER_COLUMNS = ("digit", "is", "new pictures", "named rightly", "taken for another", "unknown")


def head_row(result: HeadResult) -> list[str]:
    """Return a head's row of the table of heads: its name and the columns of ``COLUMNS``."""
    return [result.name, *(f"{result.row[key]:.{4 if key == 'fisher' else 1}f}" for key in COLUMNS)]


def commands(folder: str | os.PathLike[str], threshold: float) -> list[str]:
    """Return the command lines that do by hand what the demonstration does with its gallery.

    >>> commands("runs/demo", 0.5)[0]
    'hypersphere gallery enrol runs/demo/mine.db runs/demo/fit/embedder.safetensors runs/demo/pictures/train'
    """
    top = pathlib.Path(folder)
    common = [str(top / "mine.db"), str(top / "fit" / "embedder.safetensors")]
    lines = [
        ["enrol", *common, str(top / "pictures" / "train")],
        [
            "identify",
            *common,
            *(str(top / "new" / digit / "001.png") for digit in "39"),
            f"--threshold={threshold:.4f}",
        ],
    ]
    return [shlex.join(["hypersphere", "gallery", *line]) for line in lines]


def _gallery(
    folder: pathlib.Path, answers: Sequence[DigitAnswers], probes: Sequence[Probe], threshold: float, drawn: bool
) -> Section:
    note = Note(
        f"The threshold, a cosine of {threshold:.3f}, lets in at most {FPIR:.0%} of new pictures of {' and '.join(SHOWN_BEFORE)} that it "
        f"was set with. {STRANGERS[-1]} took part in nothing before, so its row shows what such a threshold is worth for others."
    )
    rows = [answer_row(digit) for digit in answers]
    grid = Grid("What the gallery said to pictures that it had not seen", ANSWER_COLUMNS, rows, numeric=True)
    groups = [_group(digit.digit, probes) for digit in answers]
    pictures = [Pictures("Some of them, with the nearest identity and its cosine", groups)] if drawn else []
    return Section("gallery", "Who is this?", [grid, note, *pictures, Commands("By hand", commands(folder, threshold))])


def _group(digit: str, probes: Sequence[Probe]) -> tuple[list[Tile], str]:
    mine = [probe for probe in probes if probe.digit == digit][:SHOWN]
    said = [f"{p.match.identity if p.match.accepted else 'unknown'} ({p.match.score:.2f})" for p in mine]
    return [Tile(SHEET, probe.place, f"a {digit}") for probe in mine], f"{digit}: {', '.join(said)}"


def _heads(heads: Sequence[HeadResult]) -> Section:
    grid = Grid(
        "All ten digits with features in three dimensions",
        ["head", *COLUMNS.values()],
        [head_row(head) for head in heads],
        numeric=True,
    )
    note = Note(
        "Margins draw a class together and classes apart. heads.html beside this page has their spheres and curves."
    )
    return Section("heads", "Four heads side by side", [grid, note])
