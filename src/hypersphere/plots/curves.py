"""Curves: ψ of margins (fig. 2.3), magnitudes and angular functions (fig. 4.3), measures over training (fig. 7.3)."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .canvas import axes, style, tidy


def plot_angular(
    functions: Mapping[str, Callable[[Tensor], Tensor]], *, ylabel: str = "g(θ)", ax: Any = None
) -> tuple[Any, Any]:
    """Draw functions of cos θ, such as angular functions g or the ψ of margins, over θ ∈ [0, π] and return ``(fig, ax)``.

    >>> fig, ax = plot_angular({"cosine": hs.angular.Cosine(), "linear": hs.angular.Linear()})
    """
    figure, ax = axes(ax, size=(6.4, 4.0))
    theta = torch.linspace(0, math.pi, 500, dtype=torch.float64)
    for index, (name, function) in enumerate(functions.items()):
        ax.plot(theta, function(theta.cos()).detach(), **style(index), linewidth=1.8, label=name)
    ax.set_xticks([0, math.pi / 4, math.pi / 2, 3 * math.pi / 4, math.pi], ["0", "π/4", "π/2", "3π/4", "π"])
    ax.axhline(0, color="0.85", linewidth=0.8, zorder=0)
    tidy(ax, xlabel="θ (radians)", ylabel=ylabel, legend=True)
    return figure, ax


def plot_magnitude(
    functions: Mapping[str, Callable[[Tensor], Tensor]], *, longest: float = 4.0, ax: Any = None
) -> tuple[Any, Any]:
    """Draw magnitudes h over ‖x‖ ∈ [0, ``longest``] and return ``(fig, ax)``; each callable maps lengths to h.

    >>> fig, ax = plot_magnitude({"tanh": torch.tanh})
    >>> ax.get_xlabel()
    '‖x‖'
    """
    figure, ax = axes(ax, size=(6.4, 4.0))
    length = torch.linspace(0, longest, 400, dtype=torch.float64)
    for index, (name, function) in enumerate(functions.items()):
        ax.plot(length, function(length).detach(), **style(index), linewidth=1.8, label=name)
    tidy(ax, xlabel="‖x‖", ylabel="h(‖x‖)", legend=True)
    return figure, ax


def plot_dynamics(
    steps: Sequence[float],
    series: Mapping[str, Sequence[float]],
    *,
    ylabel: str = "",
    xlabel: str = "step",
    log: bool = False,
    ax: Any = None,
) -> tuple[Any, Any]:
    """Draw measures over training, one line per name: hyperspherical energy per layer, accuracy, loss.

    One or two values are drawn as points without a line, because two points show no trend.

    Args:
        steps: Steps at which the values were measured.
        series: Values by name, one per step.
        ylabel: Label of the axis of values, with the unit.
        xlabel: Label of the axis of steps.
        log: Whether the axis of values is logarithmic.
        ax: Axes to draw on; None makes a new figure.

    Returns:
        ``(fig, ax)``.

    >>> fig, ax = plot_dynamics([0, 100, 200], {"conv1": [3.0, 2.0, 1.5]}, ylabel="energy")
    """
    for name, values in series.items():
        if len(values) != len(steps):
            raise ValueError(f"series {name!r} has {len(values)} values for {len(steps)} steps")
    figure, ax = axes(ax, size=(6.4, 4.0) if len(series) > 1 else (5.0, 4.0))
    for index, (name, values) in enumerate(series.items()):
        line_style = style(index) if len(steps) > 2 else {**style(index), "linestyle": ""}
        marker = "o" if len(steps) <= 20 else ""
        ax.plot(steps, values, **line_style, linewidth=1.6, marker=marker, markersize=4, label=name)
    if log:
        ax.set_yscale("log")
    tidy(ax, xlabel=xlabel, ylabel=ylabel, legend=len(series) > 1)
    return figure, ax
