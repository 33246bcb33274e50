"""Functions as curves: ψ of margins (fig. 2.3), magnitudes and angular functions (fig. 4.3), measures over training (fig. 7.3)."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ._canvas import axes, style, tidy


def plot_angular(
    functions: Mapping[str, Callable[[Tensor], Tensor]], *, ylabel: str = "g(θ)", ax: Any = None
) -> tuple[Any, Any]:
    """Functions of cos θ over θ ∈ [0, π]: angular functions g, or the ψ of margins.

    >>> import matplotlib; matplotlib.use("Agg")
    >>> fig, ax = plot_angular({"cosine": hs.angular.Cosine(), "linear": hs.angular.Linear()})
    """
    figure, ax = axes(ax)
    theta = torch.linspace(0, math.pi, 500, dtype=torch.float64)
    for index, (name, function) in enumerate(functions.items()):
        ax.plot(theta, function(theta.cos()).detach(), **style(index), linewidth=1.8, label=name)
    ax.set_xticks([0, math.pi / 4, math.pi / 2, 3 * math.pi / 4, math.pi], ["0", "π/4", "π/2", "3π/4", "π"])
    ax.axhline(0, color="0.85", linewidth=0.8, zorder=0)
    tidy(ax, xlabel="θ", ylabel=ylabel, legend=True)
    return figure, ax


def plot_magnitude(
    functions: Mapping[str, Callable[[Tensor], Tensor]], *, longest: float = 4.0, ax: Any = None
) -> tuple[Any, Any]:
    """Magnitudes h over ‖x‖ ∈ [0, ``longest``]; each callable maps lengths to h."""
    figure, ax = axes(ax)
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
    """Measures over training: hyperspherical energy per layer, accuracy, loss; one line a name."""
    for name, values in series.items():
        if len(values) != len(steps):
            raise ValueError(f"series {name!r} has {len(values)} values for {len(steps)} steps")
    figure, ax = axes(ax)
    for index, (name, values) in enumerate(series.items()):
        ax.plot(steps, values, **style(index), linewidth=1.6, label=name)
    if log:
        ax.set_yscale("log")
    tidy(ax, xlabel=xlabel, ylabel=ylabel, legend=len(series) > 1)
    return figure, ax
