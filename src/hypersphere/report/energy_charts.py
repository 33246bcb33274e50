"""Charts of the energy of layers, with random neurons and a lower bound as references, and of learned k and ρ."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..energy import Riesz, energy_lower_bound
from ..energy.checkpoint_report import LayerReport
from ..energy.reference_energies import random_energy
from .page_parts import Block, Chart, Grid, Note, Section, arrange_charts, escape_markup, make_key
from .runs import RunRecord
from .training_charts import make_line, thin_points

MAX_SEPARATE = 3  # up to this number of layers, each layer has a chart; more layers share one chart
LEARNED = {"log_k": ("k", "Learned k of the sigmoid angle"), "log_rho": ("ρ", "Learned radius ρ of the magnitudes")}
ABOUT = (
    "The energy is the mean of 1/‖ŵᵢ − ŵⱼ‖² over pairs of neurons (s = 2). The references are the energy of random "
    "directions and a lower bound for this number of neurons and this dimension."
)


def make_energy_section(runs: Sequence[RunRecord]) -> Section | None:
    """Return the energies of layers during training; None if no energies were logged.

    A few layers have one chart each with all runs. More layers share one chart per run, relative to random neurons, with a
    table of the numbers.
    """
    layers = [name for run in runs for row in run.log for name in row if name.startswith("energy/")]
    names = list(dict.fromkeys(layers))
    if not names:
        return None
    blocks: list[Block] = [Note(ABOUT)]
    if len(names) <= MAX_SEPARATE:
        blocks += arrange_charts([_draw_layer(runs, name) for name in names])
    else:
        blocks += arrange_charts([_draw_all_layers(run, names, place, len(runs) > 1) for place, run in enumerate(runs)])
        columns = [
            "layer",
            *(["run"] if len(runs) > 1 else []),
            "neurons × dim",
            "start",
            "end",
            "random",
            "lower bound",
        ]
        rows = [row for name in names for run in runs for row in _summarize_layer(run, name, len(runs) > 1)]
        blocks.append(Grid("Energies at the start and at the end", columns, rows, numeric=True, folded=True))
    return Section("energy", "Energy of the layers", blocks)


def make_learned_section(runs: Sequence[RunRecord]) -> Section | None:
    """Return box plots of learned k and ρ, one per layer; None if no layer learns them."""
    blocks: list[Block] = []
    for place, run in enumerate(runs):
        for ending, (letter, caption) in LEARNED.items():
            found = run.weights(f".{ending}", f"{ending}")
            if found:
                blocks.append(_draw_boxes(make_key(ending, place), letter, f"{caption}, {run.name}", found, ending))
    return Section("learned", "Learned k and ρ", blocks) if blocks else None


def make_checkpoint_section(layers: Sequence[LayerReport], name: str, bounded: bool = True) -> Section:
    """Return the energies of a checkpoint's layers relative to random layers, with dead and duplicate neurons.

    Args:
        layers: The measured layers.
        name: The checkpoint's name.
        bounded: Add the lower bound, which is known for s = 2 in the full space.
    """
    ratios = [layer.energy / layer.random_mean if layer.random_mean else float("nan") for layer in layers]
    floors = [_compute_lower_bound(layer.neurons, layer.dim) / layer.random_mean for layer in layers]
    rows = [escape_markup(layer.name) for layer in layers]
    spread = [3 * layer.random_std / layer.random_mean for layer in layers]
    traces: list[dict[str, Any]] = [
        {"type": "scatter", "mode": "markers", "name": "random, ± 3 deviations", "x": [1.0] * len(rows), "y": rows,
         "error_x": {"type": "data", "array": spread}, "tint": 7, "marker": {"symbol": "line-ns-open", "size": 10}},
        {"type": "scatter", "mode": "markers", "name": "lower bound", "x": floors, "y": rows, "tint": 2,
         "marker": {"symbol": "triangle-right", "size": 9}},
        {"type": "scatter", "mode": "markers", "name": escape_markup(name), "x": ratios, "y": rows, "tint": 0,
         "marker": {"size": 10}},
    ]  # fmt: skip
    layout = {
        "xaxis": {"title": {"text": "energy over that of random neurons"}, "type": _choose_scale(ratios)},
        "yaxis": {"autorange": "reversed", "type": "category"},
        "height": max(240, 90 + 30 * len(rows)),
    }
    worst = max(zip(ratios, rows, strict=True), default=(0.0, "none"))
    summary = (
        f"Energy of {len(rows)} layers; the largest, {worst[0]:.3g} times that of random neurons, is in {worst[1]}."
    )
    table = [_format_row(layer, bounded) for layer in layers]
    columns = ["layer", "neurons × dim", "energy", "random", "smallest angle", "dead", "duplicates"]
    if bounded:
        columns.insert(4, "lower bound")
    else:
        del traces[1]
    return Section(
        "energy",
        "Energy of the layers",
        [
            Chart("checkpoint", "Energy of every layer beside random layers", summary, traces, layout, size="full"),
            Grid("Layers", columns, table, numeric=True),
        ],
    )


def _draw_all_layers(run: RunRecord, names: Sequence[str], place: int, several: bool) -> Chart:
    """Return one chart of all layers of a run, each as a share of the energy of random neurons where that is finite."""
    traces, ends = [], []
    for tint, name in enumerate(names):
        steps, values = run.series(name)
        shape = run.shape(name.removeprefix("energy/"))
        if not values or shape is None or shape[1] <= 3:
            continue
        random = random_energy(*shape, Riesz(2)).mean
        ratios = [value / random for value in values]
        traces.append(make_line(name.removeprefix("energy/"), *thin_points(steps, ratios), tint % 8))
        ends.append((ratios[-1], name.removeprefix("energy/")))
    caption = f"Energy of all layers relative to random neurons{f', {run.name}' if several else ''}"
    summary = f"{caption}."
    if ends:
        summary = f"{caption}; at the end between {min(ends)[0]:.4g} ({min(ends)[1]}) and {max(ends)[0]:.4g} ({max(ends)[1]})."
    layout = {"xaxis": {"title": {"text": "step"}}, "yaxis": {"title": {"text": "energy / random energy"}}}
    return Chart(make_key("energy-layers", place), caption, summary, traces, {**layout, "showlegend": len(traces) <= 8})


def _summarize_layer(run: RunRecord, name: str, several: bool) -> Iterator[list[str]]:
    """Yield the row of a layer in the table of energies, if the run has logged it."""
    layer = name.removeprefix("energy/")
    _, values = run.series(name)
    shape = run.shape(layer)
    if values:
        random = f"{random_energy(*shape, Riesz(2)).mean:.5g}" if shape is not None and shape[1] > 3 else "–"
        size, bound = ("–", "–") if shape is None else (f"{shape[0]} × {shape[1]}", f"{energy_lower_bound(*shape):.5g}")
        yield [layer, *([run.name] if several else []), size, f"{values[0]:.5g}", f"{values[-1]:.5g}", random, bound]


def _draw_layer(runs: Sequence[RunRecord], name: str) -> Chart:
    layer = name.removeprefix("energy/")
    traces, parts = [], []
    for tint, run in enumerate(runs):
        steps, values = run.series(name)
        if values:
            traces.append(make_line(run.name, *thin_points(steps, values), tint))
            parts.append(f"{run.name} ends at {values[-1]:.4g}")
    shape = next((run.shape(layer) for run in runs if run.shape(layer)), None)
    caption = layer
    if shape is not None:
        caption = f"{layer}: {shape[0]} neurons in {shape[1]} dimensions"
        ends = [min(t["x"][0] for t in traces), max(t["x"][-1] for t in traces)]
        # In two and three dimensions the mean of random neurons is infinite, so there is no line to draw.
        random = [("random", random_energy(*shape, Riesz(2)).mean, "dash")] if shape[1] > 3 else []
        for label, height, dash in (*random, ("lower bound", energy_lower_bound(*shape), "dot")):
            traces.append({"type": "scatter", "mode": "lines", "name": label, "x": ends, "y": [height] * 2, "tint": 7,
                           "line": {"dash": dash, "width": 1.5}})  # fmt: skip
            parts.append(f"{label} {height:.4g}")
    values = [v for trace in traces for v in trace["y"]]
    axis: dict[str, Any] = {"title": {"text": "energy"}}
    if min(values) > 0 and max(values) > 20 * min(values):
        axis |= {"type": "log", "dtick": 1}
    layout = {"xaxis": {"title": {"text": "step"}}, "yaxis": axis}
    return Chart(make_key("energy", layer), caption, f"Energy of {layer}: {'; '.join(parts)}.", traces, layout)


def _draw_boxes(key: str, letter: str, caption: str, found: Mapping[str, Tensor], ending: str) -> Chart:
    traces: list[dict[str, Any]] = []
    every = []
    for name, logarithm in found.items():
        values = logarithm.double().exp().flatten()
        every.append(values)
        layer = name.removesuffix(ending).rstrip(".") or "all layers"
        kept = values[torch.linspace(0, len(values) - 1, min(len(values), 500)).long()]
        traces.append({"type": "box", "name": escape_markup(layer), "y": kept.tolist(), "tint": 0, "boxpoints": "outliers",
                       "showlegend": False})  # fmt: skip
    total = torch.cat(every)
    layout = {"yaxis": {"title": {"text": letter}}, "xaxis": {"tickangle": -30}}
    summary = f"{caption}: {len(total):,} values between {float(total.min()):.3g} and {float(total.max()):.3g}."
    return Chart(key, caption, summary, traces, layout, size="full")


def _format_row(layer: LayerReport, bounded: bool) -> list[str]:
    floor = [f"{_compute_lower_bound(layer.neurons, layer.dim):.5g}"] if bounded else []
    return [
        layer.name,
        f"{layer.neurons} × {layer.dim}",
        f"{layer.energy:.5g}",
        f"{layer.random_mean:.5g} ± {layer.random_std:.1g}",
        *floor,
        f"{layer.separation * 180 / torch.pi:.2f}°",
        str(len(layer.dead)),
        str(len(layer.duplicates)),
    ]


def _compute_lower_bound(neurons: int, dim: int) -> float:
    return energy_lower_bound(neurons, dim) if min(neurons, dim) > 1 else float("nan")


def _choose_scale(ratios: Sequence[float]) -> str:
    finite = [ratio for ratio in ratios if ratio == ratio]
    return "log" if finite and max(finite) > 10 else "linear"
