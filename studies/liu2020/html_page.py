"""The HTML page of a claim: published and measured values, checks, and the curves of its arms."""

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
    escape_markup,
    make_key,
)
from hypersphere.report.training_charts import make_line

from .arms import Row
from .claim import Claim
from .effects import Estimate
from .markdown_page import compute_estimates, decide_outcomes, format_effect, format_estimate
from .rows import group_metrics


def write_claim(claim: Claim, rows: Sequence[Row], path: str | os.PathLike[str], *, command: str = "") -> pathlib.Path:
    """Write a page about a claim and its recorded runs, and return its path."""
    return save(make_claim_page(claim, rows, command), path)


def make_claim_page(claim: Claim, rows: Sequence[Row], command: str = "") -> Page:
    """Return the page: checks, metrics of the arms with their errors, curves over steps, published values."""
    table, values = compute_estimates(rows), group_metrics(list(rows))
    checks = decide_outcomes(claim, values)
    holds = sum(outcome == "holds" for _, outcome in checks)
    first: list[Block] = [
        PageFacts([("Checks that hold", f"{holds} of {len(checks)}", ""), ("Runs", str(len(rows)), ""), ("Arms", str(len(table)), "")]),
        Note(claim.text.statement),
        Grid(
            "Checks",
            ["check", "difference, paired (unpaired) 95 %", "outcome"],
            [[check.name, format_effect(check.compute_effect(values)), outcome] for check, outcome in checks],
        ),
    ]  # fmt: skip
    metrics = [key for key in claim.metrics if any(key in values for values in table.values())]
    charts = [_draw_metric(table, key, claim.metrics[key]) for key in metrics]
    names = [claim.metrics[key] for key in metrics]
    cells = [
        [arm, *(format_estimate(table[arm][key]) if key in table[arm] else "–" for key in metrics)] for arm in table
    ]
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
        Section("curves", "Curves", arrange_charts(_draw_curves(rows))),
        Section("published", "Published", [*published, differences]),
        Section("repeat", "Repeat it", [Commands("The claim", [command])] if command else []),
    ]
    return Page(claim.title, "A claim of Liu (2020): published and measured values.", [s for s in sections if s.blocks])


def _draw_metric(table: Mapping[str, Mapping[str, Estimate]], key: str, name: str) -> Chart:
    arms = [arm for arm in table if key in table[arm]]
    found = [table[arm][key] for arm in arms]
    errors = [0.0 if one.error != one.error else one.error for one in found]
    trace = {"type": "scatter", "mode": "markers", "name": escape_markup(name), "x": [one.mean for one in found], "tint": 0,
             "y": [escape_markup(arm) for arm in arms], "error_x": {"type": "data", "array": errors}, "marker": {"size": 9}}  # fmt: skip
    said = "; ".join(f"{arm} {format_estimate(one)}" for arm, one in zip(arms, found, strict=True))
    layout = {"yaxis": {"type": "category", "autorange": "reversed"}, "height": max(200, 70 + 26 * len(arms))}
    return Chart(make_key("arms", key), name, f"{name}: {said}.", [trace], layout)


def _draw_curves(rows: Sequence[Row]) -> list[Chart]:
    """Return one chart per recorded curve, with a line for the first seed of each arm."""
    first: dict[str, Any] = {}
    for row in rows:
        first.setdefault(row["arm"], row.get("curve", {}))
    keys = dict.fromkeys(key for curve in first.values() for key in curve if key != "step")
    charts = []
    for key in keys:
        traces = [
            make_line(arm, curve["step"], curve[key], tint)
            for tint, (arm, curve) in enumerate(first.items())
            if key in curve
        ]
        layout = {"xaxis": {"title": {"text": "step"}}}
        charts.append(
            Chart(make_key("curve", key), key, f"{key} of {len(traces)} arms over steps, first seed.", traces, layout)
        )
    return charts
