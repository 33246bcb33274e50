"""The Markdown page of a claim: published and measured values, checks with their intervals, differences of the arms, tuning."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .arms import Row
from .claim import Check, Claim, Measured, Outcome, Published, decide_verdict
from .effects import MAX_SEEDS, Effect, Estimate
from .rows import group_metrics, make_trial
from .tuning import format_changes, format_choice

Table = dict[str, dict[str, Estimate]]
MIN_DECIMAL_ERROR = 1e-4  # smaller errors are written with an exponent


def format_claim(
    claim: Claim,
    rows: Sequence[Row],
    picture: str = "",
    before: Sequence[Row] = (),
    tuning: Sequence[Row] = (),
    pilots: Sequence[Row] = (),
) -> str:
    """Return the page of a claim from its rows, rows of tuning, pilots, and ``before``, the superseded rows."""
    values = group_metrics(list(rows))
    checks = decide_outcomes(claim, values)
    parts = [
        f"# {claim.title}",
        f"**Claim.** {claim.text.statement}",
        f"**Verdict: {decide_verdict([outcome for _, outcome in checks])}.** {claim.text.conclusion}".strip(),
    ]
    parts += ["**Published.**\n\n" + "\n".join(_format_published(published) for published in claim.published)]
    parts += ["**Measured.**", *(format_tables(claim, rows) or ["No runs with the present settings of the claim."])]
    parts += [f"![{claim.caption}]({picture})\n\n{claim.caption}"] if picture else []
    parts += [
        "**Checks.**\n\n" + format_checks(checks, values),
        *format_commands(claim, checks),
        format_conditions(rows),
    ]
    parts += ["**Differences of setting.**\n\n" + "\n".join(f"- {difference}" for difference in claim.text.differences)]
    parts += _format_differences(claim)
    parts += _format_choices(claim, rows, tuning)
    parts += _format_pilots(claim, pilots)
    if before:
        note = "Measured with earlier settings of the claim; `rows/` contains the settings of every run."
        parts += [
            f"**Superseded.** {note} They count for no check.",
            *format_tables(claim, before),
            format_conditions(before),
        ]
    return "\n\n".join(parts)


def decide_outcomes(claim: Claim, values: Measured) -> list[tuple[Check, Outcome]]:
    """Return each check with its outcome."""
    return [(check, check.decide_outcome(values)) for check in claim.checks]


def compute_estimates(rows: Sequence[Row]) -> Table:
    """Return ``table[arm][metric]`` over the recorded seeds; an arm whose runs all diverged has no metrics."""
    found = group_metrics(list(rows))
    return {arm: {k: Estimate.of(list(v.values())) for k, v in metrics.items()} for arm, metrics in found.items()}


def format_tables(claim: Claim, rows: Sequence[Row]) -> list[str]:
    """Return one table per group of arms, with the metrics of the group."""
    table: Table = compute_estimates(rows)
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
            values = [format_estimate(table[arm][key]) if key in table[arm] else "–" for key in metrics]
            lines.append(f"| {arm.rpartition('/')[2]} | {' | '.join(values)} | {seeds} |")
        texts.append("\n".join(lines))
    return texts


def format_checks(checks: Sequence[tuple[Check, Outcome]], values: Measured) -> str:
    """Return a table of all checks with both values, the difference and its two intervals, and the published values."""
    lines = [
        "| check | measured | difference, paired (unpaired) 95 % | published | outcome |",
        "|---|---|---|---|---|",
    ]
    for check, outcome in checks:
        effect = check.compute_effect(values)
        published = "" if check.published is None else f"{check.published[0]:g} against {check.published[1]:g}"
        said = format_outcome(check, outcome, values)
        lines.append(
            f"| {check.name} | {_format_values(check, values)} | {format_effect(effect)} | {published} | {said} |"
        )
    return "\n".join(lines)


def format_outcome(check: Check, outcome: Outcome, values: Measured) -> str:
    """Return the text of an outcome; an undecided one includes the number of seeds that would decide it."""
    if outcome != "undecided":
        return outcome
    count = check.count_required_seeds(values)
    if count is None:
        return f"undecided at this size: needs more than {MAX_SEEDS} seeds"
    return f"undecided at this size: needs {count} seeds"


def format_commands(claim: Claim, outcomes: Sequence[tuple[Check, Outcome]]) -> list[str]:
    """Return the commands that run more seeds and the paper size, if a check is not decided."""
    if not any(outcome in ("undecided", "not measured") for _, outcome in outcomes):
        return []
    more = f"`python -m studies.liu2020 {claim.id} --only 'GROUP/*' --seeds N` runs more seeds of a group"
    return [f"{more}; on a GPU, `python -m studies.liu2020 {claim.id} --size paper` runs the settings of Liu (2020)."]


def format_effect(effect: Effect | None) -> str:
    """Format a difference with half the widths of its intervals.

    >>> format_effect(Effect(2.0, 1.0, 0.248, 2.31, 3))
    '+2.00 ± 0.25 (± 2.31)'
    """
    if effect is None:
        return ""
    if 0 < effect.paired < MIN_DECIMAL_ERROR:
        return f"{effect.mean:+.2g} ± {effect.paired:.1g} (± {effect.unpaired:.1g})"
    digits = _count_digits(effect.paired)
    return f"{effect.mean:+.{digits}f} ± {effect.paired:.{digits}f} (± {effect.unpaired:.{digits}f})"


def format_estimate(estimate: Estimate) -> str:
    """Format a mean ± standard error, with two digits of the error.

    >>> format_estimate(Estimate(12.3456, 0.0789, 3)), format_estimate(Estimate(12.3456, float("nan"), 1))
    ('12.346 ± 0.079', '12.35')
    """
    if math.isnan(estimate.error):
        return f"{estimate.mean:.4g}"
    if 0 < estimate.error < MIN_DECIMAL_ERROR:
        return f"{estimate.mean:.3g} ± {estimate.error:.1g}"
    digits = _count_digits(estimate.error)
    return f"{estimate.mean:.{digits}f} ± {estimate.error:.{digits}f}"


def format_conditions(rows: Sequence[Row]) -> str:
    """Return one line with the number of runs, their time, threads, dates and versions."""
    if not rows:
        return "No runs are recorded."
    minutes = sum(row["cpu_seconds" if "cpu_seconds" in row else "seconds"] for row in rows) / 60
    threads = ", ".join(sorted({str(row["threads"]) for row in rows}))
    dates = sorted({row["date"] for row in rows})
    span = dates[0] if len(dates) == 1 else f"{dates[0]} – {dates[-1]}"
    versions = ", ".join(sorted({row["version"] for row in rows}))
    diverged = sum(bool(row.get("diverged")) for row in rows)
    note = f" ({diverged} of them diverged and have no metrics)" if diverged else ""
    return f"{len(rows)} runs{note}, {minutes:.0f} CPU minutes, {threads} thread(s), {span}, hypersphere {versions}."


def _count_digits(error: float) -> int:
    return min(max(1 - math.floor(math.log10(error)), 0), 4) if error > 0 else 4


def _format_published(published: Published) -> str:
    values = "; ".join(f"{name}: {value}" for name, value in published.values.items())
    where = (
        published.table if published.table[0].isalpha() and published.table[1:2] != "." else f"table {published.table}"
    )
    return f"- {where}, {published.what}: {values}"


def _format_values(check: Check, values: Measured) -> str:
    sides = [
        format_estimate(Estimate.of(list(values[arm][check.metric].values())))
        for arm in (check.arm, check.than)
        if isinstance(arm, str) and arm in values and check.metric in values[arm]
    ]
    return " against ".join([*sides, *([f"{check.than:g}"] if isinstance(check.than, float) else [])])


def _format_differences(claim: Claim) -> list[str]:
    """Return a table of the settings in which compared arms differ before tuning."""
    lines = [f"| {a} | {b} | {_format_settings(found)} |" for (a, b), found in claim.compare_arms().items()]
    if not lines:
        return []
    head = ["| arm | against | differs in |", "|---|---|---|"]
    return ["**What compared arms differ in.**\n\n" + "\n".join([*head, *lines])]


def _format_settings(found: Mapping[str, tuple[Any, Any]]) -> str:
    return "; ".join(f"`{key}`: {_format_value(a)} ({_format_value(b)})" for key, (a, b) in found.items()) or "nothing"


def _format_value(value: Any) -> str:
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _format_choices(claim: Claim, rows: Sequence[Row], tuning: Sequence[Row]) -> list[str]:
    """Return a table of the tuned factors of each arm, all scores, and whether a factor is at the edge of its grid."""
    if claim.tuning is None:
        return []
    arms, lines = claim.get_arms("laptop"), []
    current = {row["arm"]: row["choice"] for row in rows if row["choice"]}
    for arm in (arm for arm in arms if arm in current):
        # Trials of the same arm in another group count if their settings are equal; trials of earlier settings do not.
        candidates = [row for row in tuning if row["arm"].rpartition("/")[2] == arm.rpartition("/")[2]]
        candidates = [
            row
            for row in candidates
            if isinstance(row.get("choice"), dict) and row["choice"].keys() <= current[arm].keys()
        ]
        trials = [row for row in candidates if make_trial(claim, arms[arm], row["choice"]).matches(row)]
        tried = list(
            {format_choice(row["choice"]): row for row in trials}.values()
        )  # of repeated trials, the last counts
        scores = "; ".join(
            f"{format_choice(row['choice'])}: {'diverged' if row['score'] is None else format(row['score'], '.4g')}"
            for row in tried
        )
        scores = scores or "chosen with earlier settings of the claim"
        lines.append(f"| {arm} | {format_choice(current[arm])} | {scores} | {_find_edges(current[arm], tried)} |")
    if not lines:
        return []
    head = ["| arm | chosen | validation scores | at an edge |", "|---|---|---|---|"]
    return ["**Chosen on validation samples.**\n\n" + "\n".join([*head, *lines])]


def _format_pilots(claim: Claim, pilots: Sequence[Row]) -> list[str]:
    """Return a table of the pilots: single seeds with other settings, evaluated on validation samples."""
    if not pilots:
        return []
    metrics = [key for key in claim.metrics if any(key in row["metrics"] for row in pilots)]
    lines = [
        f"| changed settings | arm | {' | '.join(claim.metrics[key] for key in metrics)} |",
        "|---" * (len(metrics) + 2) + "|",
    ]
    for row in pilots:
        values = [f"{row['metrics'][key]:.4g}" if key in row["metrics"] else "–" for key in metrics]
        lines.append(f"| {format_changes(row['changes'])} | {row['arm']} | {' | '.join(values)} |")
    note = "Single seeds with other settings, evaluated on validation samples. They count for no check."
    return [f"**Pilots.** {note}\n\n" + "\n".join(lines), format_conditions(pilots)]


def _find_edges(choice: Mapping[str, float], tried: Sequence[Row]) -> str:
    found = []
    for name, factor in choice.items():
        factors = sorted({row["choice"][name] for row in tried if name in row["choice"]})
        if factors and factor in (factors[0], factors[-1]):
            found.append(name)
    return ", ".join(found) or "no"
