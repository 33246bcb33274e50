"""Several runs side by side: the settings in which they differ, their measures, and differences on the same pairs."""

from collections.abc import Sequence
from typing import Any

import torch

from ..evaluation import DifferenceReport, Evidence, TooFewIdentitiesError, compare_embedders
from .page_parts import Block, Grid, Note, Section
from .runs import RunRecord
from .wording import format_duration, format_setting, format_value, name_measure

RESAMPLES, NEGATIVES = 300, 20_000  # bootstrap resamples, and pairs of two identities in each
MEASURE = "eer"


def make_differing_section(runs: Sequence[RunRecord]) -> Section:
    """Return the settings that are not the same in all runs."""
    rows = list_differing_settings(runs)
    columns = ["setting", *(run.name for run in runs)]
    block: Block = Grid("Settings that differ", columns, rows) if rows else Note("All settings are the same.")
    return Section("differences", "What differs", [block])


def list_differing_settings(runs: Sequence[RunRecord]) -> list[list[str]]:
    """Return the settings that differ, each with its value in every run."""
    every = [{**{f"task: {key}": item for key, item in run.task.items()}, **run.settings} for run in runs]
    keys = list(dict.fromkeys(key for settings in every for key in settings))
    absent = object()
    found = [key for key in keys if any(s.get(key, absent) != every[0].get(key, absent) for s in every[1:])]
    return [[key, *(format_setting(settings[key]) if key in settings else "–" for settings in every)] for key in found]


def make_measures_section(runs: Sequence[RunRecord]) -> Section:
    """Return the measures of all runs, and the difference of each run from the first with its interval."""
    keys = [key for run in runs for key in run.metrics if not key.startswith("energy/")]
    rows = [
        [name_measure(key), *(format_value(key, run.metrics.get(key)) for run in runs)]
        for key in dict.fromkeys(keys)
        if key != "steps"
    ]
    rows.append(["steps", *(format_setting(run.metrics.get("steps")) for run in runs)])
    rows.append(["wall time", *(format_duration(run.seconds) if run.seconds else "–" for run in runs)])
    blocks: list[Block] = [Grid("Measures at the end", ["measure", *(run.name for run in runs)], rows, numeric=True)]
    blocks += _make_difference_blocks(runs)
    return Section("measures", "Measures", blocks)


def can_compare(first: Evidence | None, other: Evidence | None) -> bool:
    """Return whether two runs have features of the same samples in the same order."""
    if first is None or other is None or not torch.equal(first.labels, other.labels):
        return False
    if first.total != other.total or list(first.classes) != list(other.classes) or first.names != other.names:
        return False
    if first.images is None or other.images is None:
        return first.images is other.images
    return torch.equal(first.images, other.images)


def _make_difference_blocks(runs: Sequence[RunRecord]) -> list[Block]:
    base = runs[0]
    rows: list[list[str]] = []
    without: list[str] = []
    for run in runs[1:]:
        report = _compare(base.evidence, run.evidence) if can_compare(base.evidence, run.evidence) else None
        if report is None:
            without.append(run.name)
            continue
        low, high = (100 * end for end in report.difference.interval)
        rows.append(
            [
                run.name,
                f"{100 * report.first:.3g} %",
                f"{100 * report.second:.3g} %",
                f"{100 * report.difference:+.3g} [{low:+.3g}, {high:+.3g}]",
                f"{100 * report.wins:.0f} %",
            ]
        )
    blocks: list[Block] = []
    if rows:
        caption = f"Equal error rate beside {base.name}, on the same pairs of the same samples"
        columns = ["run", "its own", base.name, "difference in percentage points", "resamples in which it is better"]
        blocks.append(Grid(caption, columns, rows, numeric=True))
        blocks.append(Note(f"Intervals of 95 % by a paired bootstrap of identities, {RESAMPLES} resamples."))
    if without:
        blocks.append(
            Note(
                f"Not measured on the same samples as {base.name}, or on too few identities, so not paired: "
                f"{', '.join(without)}."
            )
        )
    return blocks


def _compare(base: Any, other: Any) -> DifferenceReport | None:
    options: dict[str, Any] = {"measure": MEASURE, "negatives": NEGATIVES, "resamples": RESAMPLES}
    try:
        return compare_embedders(other.features, base.features, base.labels, **options)
    except TooFewIdentitiesError:  # the run is listed as not paired
        return None
