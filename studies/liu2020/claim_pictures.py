"""Pictures of claims, drawn from their rows. Each function returns a function from rows to a figure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from hypersphere._extras import require
from hypersphere.plots import color, plot_features, tidy

from .arms import Row
from .effects import Estimate

Picture = Callable[[Sequence[Row]], Any]


def make_planar_picture(arms: Sequence[str], *, neurons: bool = False) -> Picture:
    """Draw two-dimensional features of the first seed, one panel per arm (fig. 2.2), optionally with the class weights (fig. 5.4)."""

    def draw(rows: Sequence[Row]) -> Any:
        shown = {row["arm"]: row["points"] for row in rows if "points" in row}
        names = [arm for arm in arms if arm in shown]
        figure = require("matplotlib.figure").Figure(figsize=(2.4 * max(len(names), 1), 2.6), layout="constrained")
        for index, arm in enumerate(names):
            ax = figure.add_subplot(1, len(names), index + 1)
            features = torch.tensor(shown[arm]["features"])
            centers = torch.tensor(shown[arm]["neurons"]) if neurons else None
            labels = torch.tensor(shown[arm]["labels"])
            plot_features(features, labels, centers=centers, on_sphere=False, size=3, title=arm, ax=ax)
        return figure

    return draw


def make_curve_picture(panels: Sequence[tuple[str, str, Sequence[str]]]) -> Picture:
    """Draw means over seeds of a recorded curve over steps; each panel is (key of the curve, label, arms)."""

    def draw(rows: Sequence[Row]) -> Any:
        figure = require("matplotlib.figure").Figure(figsize=(5.4 * len(panels), 3.2), layout="constrained")
        for index, (key, label, arms) in enumerate(panels):
            ax = figure.add_subplot(1, len(panels), index + 1)
            for number, arm in enumerate(arms):
                found = [row["curve"] for row in rows if row["arm"] == arm and key in row["curve"]]
                if found:
                    values = torch.tensor([curve[key] for curve in found]).mean(0)
                    name = arm.rpartition("/")[2]  # the label of the axis names the group
                    ax.plot(found[0]["step"], values, color=color(number), linewidth=1.4, marker=".", label=name)
            tidy(ax, xlabel="step", ylabel=label, legend=bool(ax.get_lines()))
        return figure

    return draw


def make_bar_picture(metrics: Sequence[tuple[str, str]]) -> Picture:
    """Draw means over seeds with their standard errors, one panel per metric, one line per arm."""

    def draw(rows: Sequence[Row]) -> Any:
        figure = require("matplotlib.figure").Figure(figsize=(4.4 * len(metrics), 3.0), layout="constrained")
        arms = list(dict.fromkeys(row["arm"] for row in rows))
        for index, (key, label) in enumerate(metrics):
            ax = figure.add_subplot(1, len(metrics), index + 1)
            for number, arm in enumerate(arms):
                values = [row["metrics"][key] for row in rows if row["arm"] == arm and key in row["metrics"]]
                if values:
                    estimate = Estimate.of(values)
                    ax.errorbar(estimate.mean, number, xerr=estimate.error, color=color(number), marker="o", capsize=3)
            ax.set_yticks(range(len(arms)), arms, fontsize=7)
            ax.invert_yaxis()
            tidy(ax, xlabel=label)
        return figure

    return draw


def make_comparison_picture(published: Mapping[str, float], measured: Mapping[str, str], label: str) -> Picture:
    """Draw published and measured values, one line each, in ascending order; ``measured`` maps names to metrics.

    A measured value is the mean over seeds, with a small dot per seed.
    """

    def draw(rows: Sequence[Row]) -> Any:
        figure = require("matplotlib.figure").Figure(figsize=(6.4, 2.8), layout="constrained")
        ax = figure.add_subplot()
        ours = {name: [row["metrics"][key] for row in rows if key in row["metrics"]] for name, key in measured.items()}
        means = {name: sum(values) / len(values) for name, values in ours.items() if values}
        order = sorted({**published, **means}.items(), key=lambda line: line[1])
        for number, (name, value) in enumerate(order):
            shade = color(0) if name in means else "grey"
            seeds = ours.get(name, [])
            ax.plot(seeds, [number] * len(seeds), linestyle="", marker=".", color=shade, alpha=0.4)
            ax.plot([value], [number], linestyle="", marker="D" if name in means else "o", color=shade)
        ax.set_yticks(range(len(order)), [name for name, _ in order], fontsize=8)
        ax.set_xlim(left=0)
        ax.invert_yaxis()
        tidy(ax, xlabel=label)
        return figure

    return draw
