"""RESULTS.md and its pictures from the recorded rows, and nothing else: no number in it is typed."""

import functools
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from ...files import write_atomically, write_text
from . import CLAIMS
from .claim import Claim, Estimate, Outcome, Published, Verdict, verdict
from .runner import Row, recorded, superseded

Table = dict[str, dict[str, Estimate]]

PICTURES = "docs/results"

HEADER = """# Results

What Liu (2020) claims, and what came out when the claim was tested here. This file is written by `hypersphere reproduce --report` from the
rows in `results/`, one a run; `hypersphere reproduce ID` runs them again.

All runs are small: narrow networks, few steps, real data. The same budget for every arm; hyperparameters are chosen on held-out
training data, never on the test set (`results/*-tuning.jsonl`). Numbers are means ± standard errors over seeds. A check **holds** when two
means differ by more than two standard errors in the claimed direction, is **reversed** when they do in the other, and is **within noise**
otherwise; with three seeds, chance alone passes about one check in seventeen. A claim *holds* when all of its checks do; it *does not hold
here* when none does, or fewer hold than are reversed; else it *holds in part*. Rows of earlier settings stay in `results/`; they are shown
as superseded, without checks, and are not counted.

A small run cannot refute a large one. It says whether the effect is visible at this size."""

START, END = "<!-- results -->", "<!-- end of results -->"


def write(results: str | os.PathLike[str] = "results", output: str | os.PathLike[str] = ".") -> list[pathlib.Path]:
    """RESULTS.md and docs/results/<id>.png under ``output``, and the summary of its README; returns what was written."""
    root = pathlib.Path(output)
    written = [root / "RESULTS.md"]
    (root / PICTURES).mkdir(parents=True, exist_ok=True)
    for claim in CLAIMS.values():
        if rows := recorded(claim, results) or superseded(claim, results):
            written.append(root / PICTURES / f"{claim.id}.png")
            figure = claim.picture(rows)
            write_atomically(written[-1], functools.partial(figure.savefig, dpi=80, format="png"))
    write_text(written[0], text(results))
    readme = root / "README.md"
    if readme.exists():
        write_text(readme, with_summary(readme.read_text(encoding="utf-8"), results))
    return written


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
        if rows or before:
            sections.append(section(claim, rows, f"{PICTURES}/{claim.id}.png", before))
    return "\n\n".join([HEADER, summary(results), *sections]) + "\n"


def summary(results: str | os.PathLike[str] = "results") -> str:
    """The table of all claims, for the README: what is claimed, on which data, checks that hold, the verdict."""
    lines = ["| claim | text | data | runs | checks that hold | verdict |", "|---|---|---|---|---|---|"]
    for claim in CLAIMS.values():
        rows, before = recorded(claim, results), superseded(claim, results)
        runs = f"{len(rows)} ({len(before)} superseded)" if before else str(len(rows))
        outcomes = [outcome for _, outcome in outcomes_of(claim, estimates(rows))]
        measured = [outcome for outcome in outcomes if outcome != "not measured"]
        tables = ", ".join(published.table for published in claim.published)
        data = ", ".join(dict.fromkeys(config.data.name for config in claim.arms("laptop").values()))
        lines.append(
            f"| [{claim.title}](RESULTS.md#{claim.id}) | tables {tables} | {data} | {runs} | "
            f"{measured.count('holds')} of {len(measured)} | {verdict(outcomes)} |"
        )
    return "\n".join(lines)


def listing(results: str | os.PathLike[str] = "results") -> str:
    """The claims, one a line, with how many of their runs are recorded."""
    width = max(map(len, CLAIMS))
    return "\n".join(
        f"{id:<{width}}  {len(recorded(claim, results)):>3} runs  {claim.title}" for id, claim in CLAIMS.items()
    )


def section(claim: Claim, rows: Sequence[Row], picture: str = "", before: Sequence[Row] = ()) -> str:
    """One claim: published, measured, picture, differences, checks, verdict, why; then ``before``, the superseded rows."""
    table = estimates(rows)
    checks = outcomes_of(claim, table)
    drawn = claim.caption if rows else f"{claim.caption} Superseded: of earlier settings."
    parts = [
        f'## {claim.title} <a id="{claim.id}"></a>',
        f"**Claim.** {claim.statement}",
        f"**Verdict: {_verdict(checks)}.** {claim.why}".strip(),
    ]
    parts += ["**Published.**\n\n" + "\n".join(_published(published) for published in claim.published)]
    parts += ["**Measured.**", *(measured(claim, table) or ["Nothing yet with the setting the claim has now."])]
    parts += [f"![{drawn}]({picture})\n\n{drawn}"] if picture else []
    parts += ["**Differences of setting.**\n\n" + "\n".join(f"- {difference}" for difference in claim.differences)]
    lines = ["| check | measured | outcome |", "|---|---|---|"]
    lines += [f"| {check.name} | {_comparison(check, table)} | {outcome} |" for check, outcome in checks]
    parts += ["**Checks.**\n\n" + "\n".join(lines), _conditions(rows)]
    if before:
        note = "Measured with settings the claim had before, whose differences from the present one `results/` spells out row by row."
        parts += [f"**Superseded.** {note} They count for no check.", *measured(claim, estimates(before))]
        parts += [_conditions(before)]
    return "\n\n".join(parts)


def measured(claim: Claim, table: Table) -> list[str]:
    """One table for each group of arms, with the metrics it has."""
    groups: dict[str, list[str]] = {}
    for arm in table:
        groups.setdefault(arm.rpartition("/")[0], []).append(arm)
    texts = []
    for group, arms in groups.items():
        metrics = [key for key in claim.metrics if any(key in table[arm] for arm in arms)]
        lines = [
            f"| {group or 'arm'} | {' | '.join(claim.metrics[key] for key in metrics)} | seeds |",
            "|---" * (len(metrics) + 2) + "|",
        ]
        for arm in arms:
            seeds = max((estimate.seeds for estimate in table[arm].values()), default=0)
            values = [shown(table[arm][key]) if key in table[arm] else "–" for key in metrics]
            lines.append(f"| {arm.rpartition('/')[2]} | {' | '.join(values)} | {seeds} |")
        texts.append("\n".join(lines))
    return texts


def estimates(rows: Sequence[Row]) -> Table:
    """``table[arm][metric]`` over the seeds there are; an arm whose runs all diverged has no metrics."""
    values: dict[str, dict[str, list[float]]] = {row["arm"]: {} for row in rows}
    for row in rows:
        for key, value in row["metrics"].items():
            values.setdefault(row["arm"], {}).setdefault(key, []).append(value)
    return {arm: {key: Estimate.of(found) for key, found in metrics.items()} for arm, metrics in values.items()}


def outcomes_of(claim: Claim, table: Table) -> list[tuple[Any, Outcome]]:
    """Each check with its outcome."""
    return [(check, check.outcome(table)) for check in claim.checks]


def shown(estimate: Estimate) -> str:
    """Mean ± standard error, as many digits as the error has two of.

    >>> shown(Estimate(12.3456, 0.0789, 3)), shown(Estimate(12.3456, float("nan"), 1))
    ('12.346 ± 0.079', '12.35')
    """
    if math.isnan(estimate.error):
        return f"{estimate.mean:.4g}"
    digits = min(max(1 - math.floor(math.log10(estimate.error)), 0), 4) if estimate.error > 0 else 4
    return f"{estimate.mean:.{digits}f} ± {estimate.error:.{digits}f}"


def _verdict(checks: Sequence[tuple[Any, Outcome]]) -> Verdict:
    return verdict([outcome for _, outcome in checks])


def _published(published: Published) -> str:
    values = "; ".join(f"{name}: {value}" for name, value in published.values.items())
    return f"- table {published.table}, {published.what}: {values}"


def _comparison(check: Any, table: Mapping[str, Mapping[str, Estimate]]) -> str:
    sides = [
        shown(table[arm][check.metric])
        for arm in (check.arm, check.than)
        if arm in table and check.metric in table[arm]
    ]
    return " against ".join([*sides, *([f"{check.than:g}"] if isinstance(check.than, float) else [])])


def _conditions(rows: Sequence[Row]) -> str:
    if not rows:
        return "No runs are recorded."
    minutes = sum(row["seconds"] for row in rows) / 60
    threads = ", ".join(sorted({str(row["threads"]) for row in rows}))
    dates = sorted({row["date"] for row in rows})
    span = dates[0] if len(dates) == 1 else f"{dates[0]} – {dates[-1]}"
    versions = ", ".join(sorted({row["version"] for row in rows}))
    lost = sum(row.get("diverged", False) for row in rows)
    note = f" ({lost} of them diverged and have no measures)" if lost else ""
    return f"{len(rows)} runs{note}, {minutes:.0f} minutes in all, {threads} thread(s) of a CPU, {span}, hypersphere {versions}."
