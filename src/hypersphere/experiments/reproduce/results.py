"""RESULTS.md and its pictures from the recorded rows, and nothing else: no number in it is typed."""

import functools
import io
import os
import pathlib
from typing import Any

from ..._extras import require
from ...files import write_atomically, write_text
from . import CLAIMS
from .claim import Claim, verdict
from .effects_picture import Line, effects_picture
from .rows import measured, read_rows, recorded, results_file, superseded
from .runner import missing
from .section import outcomes_of, section

PICTURES = "docs/results"

HEADER = """# Results

What Liu (2020) claims, and what came out when the claim was tested here. This file is written by `hypersphere reproduce --report` from the
rows in `results/`, one a run; `hypersphere reproduce ID` runs a claim and `make reproduce` everything that is missing.

![Every measured check as a relative change with its 95 % interval](PICTURES/effects.png)

*Every measured check as the change relative to what it is compared with, positive where it is as claimed: the 95 % interval of the paired
differences (green holds, grey within noise, red reversed), and the published change where the text prints one (blue diamond).*

All runs are small: narrow networks, few steps, real data. The same budget for every arm; rates and weights of penalties are chosen on
held-out training data, never on the test set (`results/*-tuning.jsonl`), and a grid whose best entry is at its edge is extended. Settings
are committed before test results are looked at; where one was changed later, LOG.md says so. Numbers are means ± standard errors over
seeds. A seed is the same start and the same batches for every arm, so that a check compares seed by seed: it **holds** when the 95 %
interval of the paired differences (Student's t) lies on the claimed side of 0, is **reversed** when it lies on the other, and is **within
noise** otherwise; chance alone passes one check in forty. A check of *no worse* holds unless it is reversed, which with few seeds says
little: look at its interval. The unpaired interval (Welch) is printed beside it. A claim *holds* when all of its checks do; it *does not
hold here* when none does, or fewer hold than are reversed; else it *holds in part*; *so far* stands where checks are not measured yet. Rows
of earlier settings stay in `results/`; they are shown as superseded, without checks, and are not counted.

A small run cannot refute a large one. It says whether the effect is visible at this size.""".replace(
    "PICTURES", PICTURES
)

START, END = "<!-- results -->", "<!-- end of results -->"


def write(results: str | os.PathLike[str] = "results", output: str | os.PathLike[str] = ".") -> list[pathlib.Path]:
    """RESULTS.md and docs/results/<id>.png under ``output``, and the summary of its README; returns what was written."""
    root = pathlib.Path(output)
    written = [root / "RESULTS.md", root / PICTURES / "effects.png"]
    (root / PICTURES).mkdir(parents=True, exist_ok=True)
    _save(effects_picture([(claim, lines_of(claim, results)) for claim in CLAIMS.values()]), written[1], 64)
    for claim in CLAIMS.values():
        if rows := recorded(claim, results):
            written.append(root / PICTURES / f"{claim.id}.png")
            _save(claim.picture(rows), written[-1])
    write_text(written[0], text(results))
    readme = root / "README.md"
    if readme.exists():
        write_text(readme, with_summary(readme.read_text(encoding="utf-8"), results))
    return written


def _save(figure: Any, path: pathlib.Path, colors: int = 128) -> None:
    """A picture of few colours, which is a third of the size: it is kept in the repository."""
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=80, format="png")
    few = require("PIL.Image").open(drawn).convert("RGB").quantize(colors)
    write_atomically(path, functools.partial(few.save, format="png", optimize=True))


def with_summary(readme: str, results: str | os.PathLike[str] = "results") -> str:
    """The README's text with the summary between its two marks; a text without them stays as it is."""
    before, start, rest = readme.partition(START)
    _, end, after = rest.partition(END)
    return f"{before}{start}\n{summary(results)}\n{end}{after}" if end else readme


def text(results: str | os.PathLike[str] = "results") -> str:
    """RESULTS.md: how it was done, the summary, and a section for every claim that has rows."""
    sections = []
    for claim in CLAIMS.values():
        rows, before = recorded(claim, results), superseded(claim, results)
        tuning, pilots = (read_rows(results_file(claim, results, suffix)) for suffix in ("-tuning", "-pilot"))
        if rows or before or pilots:
            picture = f"{PICTURES}/{claim.id}.png" if rows else ""
            sections.append(section(claim, rows, picture, before, tuning, pilots))
    return "\n\n".join([HEADER, summary(results), *sections]) + "\n"


def lines_of(claim: Claim, results: str | os.PathLike[str]) -> list[Line]:
    """Each check with its outcome and effect."""
    values = measured(recorded(claim, results))
    return [(check, outcome, check.effect(values)) for check, outcome in outcomes_of(claim, values)]


def summary(results: str | os.PathLike[str] = "results") -> str:
    """The table of all claims, for the README: what is claimed, on which data, checks that hold, the verdict."""
    lines = ["| claim | text | data | runs | checks that hold | verdict |", "|---|---|---|---|---|---|"]
    for claim in CLAIMS.values():
        rows, left, before = recorded(claim, results), missing(claim, results), superseded(claim, results)
        notes = [f"{left} missing"] * bool(left) + [f"{len(before)} superseded"] * bool(before)
        runs = f"{len(rows)} ({', '.join(notes)})" if notes else str(len(rows))
        outcomes = [outcome for _, outcome in outcomes_of(claim, measured(rows))]
        known = [outcome for outcome in outcomes if outcome != "not measured"]
        counts = f"{known.count('holds')} of {len(known)}" + f", {known.count('reversed')} reversed" * (
            "reversed" in known
        )
        unknown = f", {len(outcomes) - len(known)} not measured" * (len(known) < len(outcomes))
        tables = ", ".join(dict.fromkeys(published.table for published in claim.published))
        data = ", ".join(dict.fromkeys(arm.data for arm in claim.sized("laptop").values() if arm.data != "none"))
        lines.append(
            f"| [{claim.title}](RESULTS.md#{claim.id}) | {tables} | {data} | {runs} | {counts}{unknown} | {verdict(outcomes)} |"
        )
    return "\n".join(lines)


def listing(results: str | os.PathLike[str] = "results") -> str:
    """The claims, one a line, with how many of their runs are recorded and missing."""
    width = max(map(len, CLAIMS))
    return "\n".join(
        f"{id:<{width}}  {len(recorded(claim, results)):>3} runs  {missing(claim, results):>3} missing  {claim.title}"
        for id, claim in CLAIMS.items()
    )
