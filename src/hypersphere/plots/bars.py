"""Bar charts with intervals, and reliability diagrams of probabilities."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .canvas import axes, color, tidy


def plot_bars(
    values: Mapping[str, float],
    *,
    intervals: Mapping[str, tuple[float, float]] | None = None,
    xlabel: str = "",
    limits: tuple[float, float] | None = None,
    title: str = "",
    ax: Any = None,
) -> tuple[Any, Any]:
    """Draw one horizontal bar per name, the first on top, and return ``(fig, ax)``.

    Args:
        values: Length of each bar by name.
        intervals: ``(low, high)`` of some or all names, drawn as whiskers.
        xlabel: Label of the axis of lengths, with the unit.
        limits: Ends of the axis of lengths; None fits the data.
        title: Title of the chart.
        ax: Axes to draw on; None makes a new figure.

    >>> fig, ax = plot_bars({"clean": 0.9, "FGSM": 0.4}, xlabel="accuracy", limits=(0, 1))
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['clean', 'FGSM']
    """
    figure, ax = axes(ax, size=(5.0, 1.2 + 0.3 * max(len(values), 4)))
    rows = range(len(values))
    ax.barh(rows, list(values.values()), height=0.7, color=color(0))
    for row, name in zip(rows, values, strict=True):
        if intervals is not None and name in intervals:
            ax.plot(intervals[name], (row, row), color="0.2", linewidth=1.2, marker="|", markersize=7)
    ax.set_yticks(rows, list(values))
    ax.invert_yaxis()
    if limits is not None:
        ax.set_xlim(*limits)
    tidy(ax, title=title, xlabel=xlabel)
    return figure, ax


def plot_reliability(
    confidence: Sequence[float] | Tensor,
    accuracy: Sequence[float] | Tensor,
    counts: Sequence[int] | Tensor,
    *,
    ylabel: str = "accuracy",
    title: str = "",
    ax: Any = None,
) -> tuple[Any, Any]:
    """Draw accuracy over confidence with the diagonal of perfect calibration, and return ``(fig, ax)``.

    Each point is one bin: its mean ``confidence``, its ``accuracy``, and an area that grows with its ``counts``. Empty bins
    are not drawn.

    >>> fig, ax = plot_reliability([0.25, 0.75], [0.3, 0.8], [10, 40])
    >>> len(ax.collections[0].get_offsets())
    2
    """
    figure, ax = axes(ax, size=(4.4, 4.2))
    x, y, n = (torch.as_tensor(v).detach().double().cpu() for v in (confidence, accuracy, counts))
    kept = n > 0
    ax.plot([0, 1], [0, 1], color="0.6", linestyle="--", linewidth=1, zorder=0)
    area = 15 + 185 * n[kept] / n.max().clamp_min(1)
    ax.scatter(x[kept].numpy(), y[kept].numpy(), s=area.numpy(), color=color(0), alpha=0.75, linewidths=0)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    tidy(ax, title=title, xlabel="confidence", ylabel=ylabel)
    return figure, ax
