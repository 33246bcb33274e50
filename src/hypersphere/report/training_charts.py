"""Charts of training: loss, metrics, learning rate and λ over training steps, with one line per run."""

from collections.abc import Sequence
from typing import Any

from .page_parts import Block, Chart, Note, Section, arrange_charts, escape_markup, make_key
from .runs import RunRecord
from .wording import convert_unit, get_suffix, name_measure

MAX_POINTS = 600  # points per line; more would not be visible on a screen
MIN_PERCENT_SPAN = 10  # smallest range of an axis whose unit is percent
MEASURES = ("eer", "tar", "rank1", "one_shot", "accuracy", "balanced_accuracy", "auc")
ANGLE_LABELS = {
    "intra_angle": "within a class",
    "inter_angle": "between classes",
    "nearest_angle": "to the nearest class",
}
ANGLES = ("intra_angle", "inter_angle", "nearest_angle")


def make_training_section(runs: Sequence[RunRecord]) -> Section | None:
    """Return the section with the overlaid curves of all runs, or None if nothing was logged."""
    logged = {name for run in runs for row in run.log for name in row}
    charts: list[Chart] = []
    if "loss" in logged:
        charts.append(_overlay_runs(runs, "loss", log=_spans_decades(runs, "loss")))
    charts += [_overlay_runs(runs, name) for name in MEASURES if name in logged]
    if len(runs) == 1 and logged.issuperset(ANGLES):
        charts.append(_draw_angles(runs[0]))
    elif len(runs) > 1:
        charts += [_overlay_runs(runs, name) for name in ANGLES[:2] if name in logged]
    charts += [_overlay_runs(runs, name) for name in ("lr", "lambda") if name in logged]
    blocks: list[Block] = [*arrange_charts(charts)]
    sparse = [run.name for run in runs if 0 < len({row["step"] for row in run.log}) < 3]
    if sparse:
        blocks.insert(0, Note(f"Too few steps were logged for a curve, so points are drawn: {', '.join(sparse)}."))
    return Section("training", "Training", blocks) if blocks else None


def make_line(name: str, x: Sequence[float], y: Sequence[float], tint: int, **options: Any) -> dict[str, Any]:
    """Return a trace of a chart: a line, a line with markers if it has few points, or markers alone for one or two points."""
    mode = "markers" if len(x) < 3 else "lines+markers" if len(x) <= 25 else "lines"
    return {"type": "scatter", "mode": mode, "name": escape_markup(name), "x": x, "y": y, "tint": tint, **options}


def thin_points(x: Sequence[float], y: Sequence[float], most: int = MAX_POINTS) -> tuple[list[float], list[float]]:
    """Return about ``most`` points or fewer: the lowest and the highest of each interval, so that no peak is lost.

    >>> thin_points(range(9), [0, 1, 0, 0, 9, 0, 0, 0, 0], most=6)
    ([0, 1, 3, 4, 6, 8], [0, 1, 0, 9, 0, 0])
    """
    if len(x) <= most:
        return list(x), list(y)
    width = -(-len(x) // (most // 2))
    kept: list[int] = []
    for start in range(0, len(x), width):
        interval = range(start, min(start + width, len(x)))
        low, high = min(interval, key=lambda i: y[i]), max(interval, key=lambda i: y[i])
        kept += sorted({low, high})
    if kept[-1] != len(x) - 1:
        kept.append(len(x) - 1)
    return [x[i] for i in kept], [y[i] for i in kept]


def choose_percent_range(values: Sequence[float]) -> list[float]:
    """Return the range of an axis in percent, which is wide enough that small differences look small.

    It spans at least :data:`MIN_PERCENT_SPAN` and stays within [0, 100.5], so that a line at 100 is visible.

    >>> choose_percent_range([100.0, 100.0]), choose_percent_range([2.0, 50.0])
    ([89.5, 100.5], [0.0, 52.4])
    """
    low, high = min(values), max(values)
    margin = 0.05 * max(high - low, MIN_PERCENT_SPAN)
    if high - low < MIN_PERCENT_SPAN:
        high = min(100.0, max(high, low + MIN_PERCENT_SPAN))
        low = max(0.0, high - MIN_PERCENT_SPAN)
    return [round(max(low - margin, 0.0), 6), round(min(high + margin, 100.5), 6)]


def _overlay_runs(runs: Sequence[RunRecord], measure: str, log: bool = False) -> Chart:
    traces, final_values = [], []
    for tint, run in enumerate(runs):
        steps, values = run.series(measure)
        shown = [convert_unit(measure, value) for value in values]
        if shown:
            traces.append(make_line(run.name, *thin_points(steps, shown), tint))
            final_values.append(f"{run.name} ends at {shown[-1]:.4g}{get_suffix(measure)}")
    layout: dict[str, Any] = {"xaxis": {"title": {"text": "step"}}, "showlegend": len(runs) > 1}
    layout["yaxis"] = {"ticksuffix": get_suffix(measure)}
    if measure in ("lr", "lambda") and traces:
        layout["yaxis"]["range"] = [0, 1.1 * max(max(trace["y"]) for trace in traces) or 1]
    if get_suffix(measure) == " %" and traces:
        layout["yaxis"]["range"] = choose_percent_range([value for trace in traces for value in trace["y"]])
    if log:
        layout["yaxis"] |= {"type": "log", "dtick": 1}
    caption = name_measure(measure).capitalize() if measure != "lambda" else name_measure(measure)
    summary = f"{caption} over training steps; {'; '.join(final_values)}."
    return Chart(make_key("training", measure), caption, summary, traces, layout)


def _draw_angles(run: RunRecord) -> Chart:
    traces, final_values = [], []
    for tint, name in enumerate(ANGLES):
        steps, values = run.series(name)
        degrees = [convert_unit(name, value) for value in values]
        traces.append(make_line(ANGLE_LABELS[name], *thin_points(steps, degrees), tint))
        final_values.append(f"{name_measure(name)} ends at {degrees[-1]:.3g}°")
    layout = {"xaxis": {"title": {"text": "step"}}, "yaxis": {"ticksuffix": "°", "rangemode": "tozero"}}
    return Chart("training-angles", "Angles of the classes", f"{'; '.join(final_values)}.", traces, layout)


def _spans_decades(runs: Sequence[RunRecord], measure: str) -> bool:
    values = [value for run in runs for value in run.series(measure)[1]]
    return bool(values) and min(values) > 0 and max(values) > 50 * min(values)
