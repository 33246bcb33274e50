"""One claim as a section of RESULTS.md: published beside measured, checks with their intervals, what arms differ in, what was chosen."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .arms import Row
from .claim import Check, Claim, Measured, Outcome, Published, verdict
from .effects import MAX_SEEDS, Effect, Estimate
from .rows import measured, trial
from .tuning import shown_changes, shown_choice

Table = dict[str, dict[str, Estimate]]
TINY = 1e-4  # errors below this are written with an exponent


def format_claim(
    claim: Claim,
    rows: Sequence[Row],
    picture: str = "",
    before: Sequence[Row] = (),
    tuning: Sequence[Row] = (),
    pilots: Sequence[Row] = (),
) -> str:
    """One claim: published, measured, picture, differences, checks, verdict, why, choices, pilots; then ``before``, the superseded rows."""
    values = measured(list(rows))
    checks = outcomes_of(claim, values)
    parts = [
        f"# {claim.title}",
        f"**Claim.** {claim.text.statement}",
        f"**Verdict: {verdict([outcome for _, outcome in checks])}.** {claim.text.conclusion}".strip(),
    ]
    parts += ["**Published.**\n\n" + "\n".join(_published(published) for published in claim.published)]
    parts += ["**Measured.**", *(tables(claim, rows) or ["Nothing yet with the setting the claim has now."])]
    parts += [f"![{claim.caption}]({picture})\n\n{claim.caption}"] if picture else []
    parts += ["**Checks.**\n\n" + check_table(checks, values), *say_commands(claim, checks), conditions(rows)]
    parts += ["**Differences of setting.**\n\n" + "\n".join(f"- {difference}" for difference in claim.text.differences)]
    parts += _fairness(claim)
    parts += _choices(claim, rows, tuning)
    parts += _pilots(claim, pilots)
    if before:
        note = "Measured with settings the claim had before, whose differences from the present one `rows/` records for every run."
        parts += [f"**Superseded.** {note} They count for no check.", *tables(claim, before), conditions(before)]
    return "\n\n".join(parts)


def outcomes_of(claim: Claim, values: Measured) -> list[tuple[Check, Outcome]]:
    """Each check with its outcome."""
    return [(check, check.outcome(values)) for check in claim.checks]


def estimates(rows: Sequence[Row]) -> Table:
    """``table[arm][metric]`` over the seeds there are; an arm whose runs all diverged has no metrics."""
    found = measured(list(rows))
    return {arm: {k: Estimate.of(list(v.values())) for k, v in metrics.items()} for arm, metrics in found.items()}


def tables(claim: Claim, rows: Sequence[Row]) -> list[str]:
    """One table for each group of arms, with the metrics it has."""
    table: Table = estimates(rows)
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


def check_table(checks: Sequence[tuple[Check, Outcome]], values: Measured) -> str:
    """Every check with both values, the difference and its two intervals, and the published pair."""
    lines = [
        "| check | measured | difference, paired (unpaired) 95 % | published | outcome |",
        "|---|---|---|---|---|",
    ]
    for check, outcome in checks:
        effect = check.effect(values)
        published = "" if check.published is None else f"{check.published[0]:g} against {check.published[1]:g}"
        said = say_outcome(check, outcome, values)
        lines.append(f"| {check.name} | {_sides(check, values)} | {difference(effect)} | {published} | {said} |")
    return "\n".join(lines)


def say_outcome(check: Check, outcome: Outcome, values: Measured) -> str:
    """An outcome in words; an undecided one says what it would take."""
    if outcome != "undecided":
        return outcome
    count = check.required_seeds(values)
    if count is None:
        return f"undecided at this size: needs more than {MAX_SEEDS} seeds, so waits for a GPU"
    return f"undecided at this size: needs {count} seeds"


def say_commands(claim: Claim, outcomes: Sequence[tuple[Check, Outcome]]) -> list[str]:
    """The commands that run more seeds and the setting of the text, where a check is not decided."""
    if not any(outcome in ("undecided", "not measured") for _, outcome in outcomes):
        return []
    more = f"`python -m studies.liu2020 {claim.id} --only 'GROUP/*' --seeds N` runs more seeds of a group"
    return [f"{more}; on a GPU, `python -m studies.liu2020 {claim.id} --size paper` runs the text's own setting."]


def difference(effect: Effect | None) -> str:
    """A difference with half the widths of its intervals.

    >>> difference(Effect(2.0, 1.0, 0.248, 2.31, 3))
    '+2.00 ± 0.25 (± 2.31)'
    """
    if effect is None:
        return ""
    if 0 < effect.paired < TINY:
        return f"{effect.mean:+.2g} ± {effect.paired:.1g} (± {effect.unpaired:.1g})"
    digits = _digits(effect.paired)
    return f"{effect.mean:+.{digits}f} ± {effect.paired:.{digits}f} (± {effect.unpaired:.{digits}f})"


def shown(estimate: Estimate) -> str:
    """Mean ± standard error, as many digits as the error has two of.

    >>> shown(Estimate(12.3456, 0.0789, 3)), shown(Estimate(12.3456, float("nan"), 1))
    ('12.346 ± 0.079', '12.35')
    """
    if math.isnan(estimate.error):
        return f"{estimate.mean:.4g}"
    if 0 < estimate.error < TINY:
        return f"{estimate.mean:.3g} ± {estimate.error:.1g}"
    digits = _digits(estimate.error)
    return f"{estimate.mean:.{digits}f} ± {estimate.error:.{digits}f}"


def conditions(rows: Sequence[Row]) -> str:
    """How many runs, how long, with how many threads, when, and with which version."""
    if not rows:
        return "No runs are recorded."
    minutes = sum(row["cpu_seconds" if "cpu_seconds" in row else "seconds"] for row in rows) / 60
    threads = ", ".join(sorted({str(row["threads"]) for row in rows}))
    dates = sorted({row["date"] for row in rows})
    span = dates[0] if len(dates) == 1 else f"{dates[0]} – {dates[-1]}"
    versions = ", ".join(sorted({row["version"] for row in rows}))
    lost = sum(bool(row.get("diverged")) for row in rows)
    note = f" ({lost} of them diverged and have no measures)" if lost else ""
    return f"{len(rows)} runs{note}, {minutes:.0f} minutes of a core in all, {threads} thread(s), {span}, hypersphere {versions}."


def _digits(error: float) -> int:
    return min(max(1 - math.floor(math.log10(error)), 0), 4) if error > 0 else 4


def _published(published: Published) -> str:
    values = "; ".join(f"{name}: {value}" for name, value in published.values.items())
    where = (
        published.table if published.table[0].isalpha() and published.table[1:2] != "." else f"table {published.table}"
    )
    return f"- {where}, {published.what}: {values}"


def _sides(check: Check, values: Measured) -> str:
    sides = [
        shown(Estimate.of(list(values[arm][check.metric].values())))
        for arm in (check.arm, check.than)
        if isinstance(arm, str) and arm in values and check.metric in values[arm]
    ]
    return " against ".join([*sides, *([f"{check.than:g}"] if isinstance(check.than, float) else [])])


def _fairness(claim: Claim) -> list[str]:
    """What compared arms differ in before anything is chosen, one line for each two arms."""
    lines = [f"| {a} | {b} | {_settings(found)} |" for (a, b), found in claim.compared().items()]
    if not lines:
        return []
    head = ["| arm | against | differs in |", "|---|---|---|"]
    return ["**What compared arms differ in.**\n\n" + "\n".join([*head, *lines])]


def _settings(found: Mapping[str, tuple[Any, Any]]) -> str:
    return "; ".join(f"`{key}`: {_value(a)} ({_value(b)})" for key, (a, b) in found.items()) or "nothing"


def _value(value: Any) -> str:
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _choices(claim: Claim, rows: Sequence[Row], tuning: Sequence[Row]) -> list[str]:
    """What each arm chose on held-out samples, the scores of all it tried, and whether the choice is at its grid's edge."""
    if claim.tuning is None:
        return []
    arms, lines = claim.sized("laptop"), []
    current = {row["arm"]: row["choice"] for row in rows if row["choice"]}
    for arm in (arm for arm in arms if arm in current):
        # Trials of an arm of another group with the same settings count, and none of settings that there were before.
        kin = [row for row in tuning if row["arm"].rpartition("/")[2] == arm.rpartition("/")[2]]
        kin = [
            row for row in kin if isinstance(row.get("choice"), dict) and row["choice"].keys() <= current[arm].keys()
        ]
        mine = [row for row in kin if trial(claim, arms[arm], row["choice"]).made(row)]
        tried = list({shown_choice(row["choice"]): row for row in mine}.values())  # tried again, the last counts
        scores = "; ".join(
            f"{shown_choice(row['choice'])}: {'diverged' if row['score'] is None else format(row['score'], '.4g')}"
            for row in tried
        )
        scores = scores or "chosen with settings the claim had before"
        lines.append(f"| {arm} | {shown_choice(current[arm])} | {scores} | {_edges(current[arm], tried)} |")
    if not lines:
        return []
    head = ["| arm | chosen | held-out scores | at an edge |", "|---|---|---|---|"]
    return ["**Chosen on held-out training samples.**\n\n" + "\n".join([*head, *lines])]


def _pilots(claim: Claim, pilots: Sequence[Row]) -> list[str]:
    """What one seed showed on held-out training samples under other settings, one line a run."""
    if not pilots:
        return []
    metrics = [key for key in claim.metrics if any(key in row["metrics"] for row in pilots)]
    lines = [
        f"| changed settings | arm | {' | '.join(claim.metrics[key] for key in metrics)} |",
        "|---" * (len(metrics) + 2) + "|",
    ]
    for row in pilots:
        values = [f"{row['metrics'][key]:.4g}" if key in row["metrics"] else "–" for key in metrics]
        lines.append(f"| {shown_changes(row['changes'])} | {row['arm']} | {' | '.join(values)} |")
    note = "One seed, measured on samples held out of the training set; they decide where the hours go and count for no check."
    return [f"**Pilots.** {note}\n\n" + "\n".join(lines), conditions(pilots)]


def _edges(choice: Mapping[str, float], tried: Sequence[Row]) -> str:
    found = []
    for name, factor in choice.items():
        factors = sorted({row["choice"][name] for row in tried if name in row["choice"]})
        if factors and factor in (factors[0], factors[-1]):
            found.append(name)
    return ", ".join(found) or "no"
