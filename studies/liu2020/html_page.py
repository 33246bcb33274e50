"""A claim as a page: what was published beside what was measured, the checks, and the courses of its arms."""

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from hypersphere.report._render import save
from hypersphere.report.page_parts import (
    Block,
    Chart,
    Commands,
    Grid,
    Note,
    Page,
    PageFacts,
    Section,
    arrange_charts,
    key_of,
    plain,
)
from hypersphere.report.training_charts import line

from .arms import Row
from .claim import Claim
from .effects import Estimate
from .markdown_page import difference, estimates, outcomes_of, shown
from .rows import measured


def write_claim(claim: Claim, rows: Sequence[Row], path: str | os.PathLike[str], *, command: str = "") -> pathlib.Path:
    """Write a page about a claim and its recorded runs, and return its path."""
    return save(claim_page(claim, rows, command), path)


def claim_page(claim: Claim, rows: Sequence[Row], command: str = "") -> Page:
    """Return the page: verdict, measures of the arms with their errors, courses, checks, published values."""
    table, values = estimates(rows), measured(list(rows))
    checks = outcomes_of(claim, values)
    holds = sum(outcome == "holds" for _, outcome in checks)
    first: list[Block] = [
        PageFacts([("Checks that hold", f"{holds} of {len(checks)}", ""), ("Runs", str(len(rows)), ""), ("Arms", str(len(table)), "")]),
        Note(claim.text.statement),
        Grid(
            "Checks",
            ["check", "difference, paired (unpaired) 95 %", "outcome"],
            [[check.name, difference(check.effect(values)), outcome] for check, outcome in checks],
        ),
    ]  # fmt: skip
    metrics = [key for key in claim.metrics if any(key in values for values in table.values())]
    charts = [_arms(table, key, claim.metrics[key]) for key in metrics]
    names = [claim.metrics[key] for key in metrics]
    cells = [[arm, *(shown(table[arm][key]) if key in table[arm] else "–" for key in metrics)] for arm in table]
    published = [
        Grid(
            f"Table {one.table}, {one.what}",
            ["", "published"],
            [[k, str(v)] for k, v in one.values.items()],
            numeric=True,
        )
        for one in claim.published
    ]
    differences = Grid("Differences of setting", [""], [[text] for text in claim.text.differences])
    sections = [
        Section("result", "Result", first),
        Section(
            "measured",
            "Measured",
            [*arrange_charts(charts), Grid("Means ± standard errors", ["arm", *names], cells, True)],
        ),
        Section("courses", "Courses", arrange_charts(_courses(rows))),
        Section("published", "Published", [*published, differences]),
        Section("repeat", "Repeat it", [Commands("The claim", [command])] if command else []),
    ]
    return Page(claim.title, "A claim tested again, measured beside published.", [s for s in sections if s.blocks])


def _arms(table: Mapping[str, Mapping[str, Estimate]], key: str, name: str) -> Chart:
    arms = [arm for arm in table if key in table[arm]]
    found = [table[arm][key] for arm in arms]
    errors = [0.0 if one.error != one.error else one.error for one in found]
    trace = {"type": "scatter", "mode": "markers", "name": plain(name), "x": [one.mean for one in found], "tint": 0,
             "y": [plain(arm) for arm in arms], "error_x": {"type": "data", "array": errors}, "marker": {"size": 9}}  # fmt: skip
    said = "; ".join(f"{arm} {shown(one)}" for arm, one in zip(arms, found, strict=True))
    layout = {"yaxis": {"type": "category", "autorange": "reversed"}, "height": max(200, 70 + 26 * len(arms))}
    return Chart(key_of("arms", key), name, f"{name}: {said}.", [trace], layout)


def _courses(rows: Sequence[Row]) -> list[Chart]:
    """One chart a measure that was followed, a line for the first seed of each arm."""
    first: dict[str, Any] = {}
    for row in rows:
        first.setdefault(row["arm"], row.get("curve", {}))
    keys = dict.fromkeys(key for curve in first.values() for key in curve if key != "step")
    charts = []
    for key in keys:
        traces = [
            line(arm, curve["step"], curve[key], tint)
            for tint, (arm, curve) in enumerate(first.items())
            if key in curve
        ]
        layout = {"xaxis": {"title": {"text": "step"}}}
        charts.append(
            Chart(key_of("course", key), key, f"{key} of {len(traces)} arms over steps, first seed.", traces, layout)
        )
    return charts
