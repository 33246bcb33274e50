"""The report of the study, generated from the recorded rows: an index, one page per claim, and their pictures."""

import functools
import io
import os
import pathlib
from typing import Any

from hypersphere._extras import require
from hypersphere.files import write_atomically, write_text

from .claim import Claim, decide_verdict
from .claims import CLAIMS
from .effects_picture import Line, draw_effects
from .markdown_page import decide_outcomes, format_claim
from .rows import FOLDER, get_rows_path, group_metrics, read_rows, select_rows, select_superseded_rows
from .runner import count_missing

INDEX = "README.md"
PAGES = "pages"

HEADER = """# Claims of Liu (2020), tested at a small size

**Read this before the table.** All runs are small: narrow networks, few steps, real data, three to ten seeds. A small run cannot refute
a large one. The table says whether an effect of the dissertation is visible at this size; it says nothing about the published systems.

![Every measured check as a relative change with its 95 % interval](pages/effects.png)

*One line per check: the change relative to the compared arm, positive if it agrees with the claim, with the 95 % interval of the paired
differences (green: holds, gray: undecided, brown: smaller than published, red: reversed). A blue diamond is the change that Liu (2020)
prints.*

"""

METHOD = """

## How to read it

- Numbers are means ± standard errors over seeds. Within a seed all arms have the same initial weights and the same batches, so arms are
  compared seed by seed.
- A check **holds** if the 95 % interval of the paired differences (Student's t) is on the claimed side of 0. It is **reversed** if the
  interval is on the other side. If the interval contains 0, the effect is **smaller than published** where the interval does not reach
  the published difference, and **undecided at this size** otherwise. Chance alone lets one check in forty hold.
- For an undecided check, the page says how many seeds would make the interval narrower than the published difference (or than the
  measured one if nothing is published), assuming the same variance. Published differences are those of full-size networks.
- A "no worse" check holds unless it is reversed. With few seeds this says little; look at the interval.
- A claim **holds** if all of its checks hold. It **does not hold here** if none holds, or if more checks are reversed than hold.
  Otherwise it **holds in part**. "So far" means that some checks are not measured yet.
- All arms have the same budget. Learning rates and penalty weights are chosen on validation samples from the training set, never on the
  test set. A grid whose best entry is at its edge is extended.
- Runs with earlier settings are "superseded": they are listed, but count for no check.

## Files

- `claims/` defines the arms and checks, `text/` contains the conclusions, `rows/` the recorded runs (`*-tuning.jsonl`: hyperparameter
  search, `*-pilot.jsonl`: single runs on validation samples).
- This page and `pages/` are written by `python -m studies.liu2020 --report`. `python -m studies.liu2020 ID` runs one claim,
  `make reproduce` everything that is missing.
"""


def write_report(
    results: str | os.PathLike[str] = FOLDER / "rows", output: str | os.PathLike[str] = FOLDER
) -> list[pathlib.Path]:
    """Write the index, the pages and the pictures below ``output``, and return their paths."""
    root = pathlib.Path(output)
    (root / PAGES).mkdir(parents=True, exist_ok=True)
    written = [root / INDEX, root / PAGES / "effects.png"]
    _save_figure(draw_effects([(claim, list_effects(claim, results)) for claim in CLAIMS.values()]), written[1], 64)
    for claim in CLAIMS.values():
        if rows := select_rows(claim, results):
            written.append(root / PAGES / f"{claim.id}.png")
            _save_figure(claim.picture(rows), written[-1])
        if text := format_page(claim, results):
            written.append(root / PAGES / f"{claim.id}.md")
            write_text(written[-1], text)
    write_text(written[0], format_index(results))
    return written


def _save_figure(figure: Any, path: pathlib.Path, colors: int = 128) -> None:
    """Save a figure with a limited palette: a third of the size, because pictures are kept in the repository."""
    stream = io.BytesIO()
    figure.savefig(stream, dpi=80, format="png")
    image = require("PIL.Image").open(stream).convert("RGB").quantize(colors)
    write_atomically(path, functools.partial(image.save, format="png", optimize=True))


def format_index(results: str | os.PathLike[str] = FOLDER / "rows") -> str:
    """Return the index: the caveat, one picture, the table of claims, and how to read it."""
    return HEADER + format_summary(results) + METHOD


def format_page(claim: Claim, results: str | os.PathLike[str] = FOLDER / "rows") -> str:
    """Return the page of a claim; empty if no run of it is recorded."""
    rows, before = select_rows(claim, results), select_superseded_rows(claim, results)
    tuning, pilots = (read_rows(get_rows_path(claim, results, suffix)) for suffix in ("-tuning", "-pilot"))
    if not (rows or before or pilots):
        return ""
    picture = f"{claim.id}.png" if rows else ""
    return format_claim(claim, rows, picture, before, tuning, pilots) + "\n"


def list_effects(claim: Claim, results: str | os.PathLike[str]) -> list[Line]:
    """Return each check with its outcome and effect."""
    values = group_metrics(select_rows(claim, results))
    return [(check, outcome, check.compute_effect(values)) for check, outcome in decide_outcomes(claim, values)]


def format_summary(results: str | os.PathLike[str] = FOLDER / "rows") -> str:
    """Return the table of all claims: tables of the text, data, runs, checks that hold, verdict."""
    lines = ["| claim | tables | data | runs | checks that hold | verdict |", "|---|---|---|---|---|---|"]
    for claim in CLAIMS.values():
        rows, left, before = (
            select_rows(claim, results),
            count_missing(claim, results),
            select_superseded_rows(claim, results),
        )
        notes = [f"{left} missing"] * bool(left) + [f"{len(before)} superseded"] * bool(before)
        runs = f"{len(rows)} ({', '.join(notes)})" if notes else str(len(rows))
        outcomes = [outcome for _, outcome in decide_outcomes(claim, group_metrics(rows))]
        known = [outcome for outcome in outcomes if outcome != "not measured"]
        counts = f"{known.count('holds')} of {len(known)}" + f", {known.count('reversed')} reversed" * (
            "reversed" in known
        )
        for other in ("smaller than published", "undecided"):
            counts += f", {known.count(other)} {other}" * (other in known)
        unknown = f", {len(outcomes) - len(known)} not measured" * (len(known) < len(outcomes))
        tables = ", ".join(dict.fromkeys(published.table for published in claim.published))
        data = ", ".join(dict.fromkeys(arm.data for arm in claim.get_arms("laptop").values() if arm.data != "none"))
        title = f"[{claim.title}]({PAGES}/{claim.id}.md)" if rows or before else claim.title
        lines.append(f"| {title} | {tables} | {data} | {runs} | {counts}{unknown} | {decide_verdict(outcomes)} |")
    return "\n".join(lines)


def format_listing(results: str | os.PathLike[str] = FOLDER / "rows") -> str:
    """Return one line per claim with the number of its recorded and missing runs."""
    width = max(map(len, CLAIMS))
    return "\n".join(
        f"{id:<{width}}  {len(select_rows(claim, results)):>3} runs  {count_missing(claim, results):>3} missing  {claim.title}"
        for id, claim in CLAIMS.items()
    )
