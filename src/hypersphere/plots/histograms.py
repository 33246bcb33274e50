"""Distributions: angles and scores of pairs (fig. 2.10), accuracies of episodes, learned curvatures (fig. 3.4)."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..geometry import angle
from .canvas import axes, color, style, tidy

SIZE_WITH_LEGEND = (6.4, 4.0)  # inches; the legend is to the right of the axes


def plot_histogram(
    values: Mapping[str, Tensor],
    *,
    bins: int = 60,
    limits: tuple[float, float] | None = None,
    density: bool = True,
    xlabel: str = "",
    ylabel: str = "",
    title: str = "",
    ax: Any = None,
) -> tuple[Any, Any]:
    """Draw the histogram of each named tensor over common bins, and return ``(fig, ax)``.

    Args:
        values: Numbers of any shape by name in the legend. Empty tensors are not drawn.
        bins: Number of bins.
        limits: Lower end of the first bin and upper end of the last; None uses the smallest and the largest value.
        density: Whether each histogram has unit area; otherwise its bars are counts.
        xlabel: Label of the axis of values, with the unit.
        ylabel: Label of the axis of bars; by default ``density`` or ``count``.
        title: Title of the chart.
        ax: Axes to draw on; None makes a new figure.

    >>> fig, ax = plot_histogram({"same": torch.rand(100), "different": torch.rand(50) - 1}, xlabel="cosine")
    >>> len(ax.containers)
    2
    """
    arrays = {name: v.detach().double().flatten().cpu() for name, v in values.items() if v.numel()}
    if not arrays:
        raise ValueError("values must hold at least one number, got none")
    if limits is None:
        low, high = min(float(v.min()) for v in arrays.values()), max(float(v.max()) for v in arrays.values())
        limits = (low, high if high > low else low + 1)
    figure, ax = axes(ax, size=SIZE_WITH_LEGEND if len(values) > 1 else (5.0, 4.0))
    for index, (name, array) in enumerate(arrays.items()):
        ax.hist(array.numpy(), bins, range=limits, density=density, alpha=0.6, color=color(index), label=name)
    tidy(ax, title=title, xlabel=xlabel, ylabel=ylabel or ("density" if density else "count"), legend=len(values) > 1)
    return figure, ax


def plot_angle_histogram(
    features: Float[Tensor, "n d"], labels: Int[Tensor, " n"], *, bins: int = 60, title: str = "", ax: Any = None
) -> tuple[Any, Any]:
    """Draw the angles between all pairs of features, of one class and of different classes, in degrees.

    Returns ``(fig, ax)``. Each histogram has unit area.

    >>> fig, ax = plot_angle_histogram(torch.eye(4), torch.tensor([0, 0, 1, 1]))
    >>> ax.get_xlabel()
    'angle between two features (degrees)'
    """
    if len(features) < 2:
        raise ValueError(f"pairs need at least two features, got {len(features)}")
    degrees = angle(features, features, pairwise=True).detach().cpu() * (180 / math.pi)
    first, second = torch.triu_indices(len(features), len(features), 1)
    same = (labels[first] == labels[second]).cpu()
    pairs = degrees[first, second]
    figure, ax = plot_histogram(
        {"same class": pairs[same], "different classes": pairs[~same]},
        bins=bins,
        limits=(0, 180),
        xlabel="angle between two features (degrees)",
        title=title,
        ax=ax,
    )
    ax.set_xticks([0, 45, 90, 135, 180])
    return figure, ax


def plot_learned_k(curvatures: dict[str, Float[Tensor, " n"]], *, bins: int = 30, ax: Any = None) -> tuple[Any, Any]:
    """Draw the curvature k of learnable sigmoid operators, one outline per layer, and return ``(fig, ax)``.

    Args:
        curvatures: Curvature of each filter, by the name of the layer in the legend.
        bins: Number of bins from 0 to the largest curvature.
        ax: Axes to draw on; None makes a new figure.

    Raises:
        ValueError: If there is no layer.

    >>> fig, ax = plot_learned_k({"conv1": torch.rand(16), "conv2": torch.rand(32)})
    >>> ax.get_xlabel(), len(ax.get_legend().get_texts())
    ('curvature k', 2)
    """
    if not curvatures:
        raise ValueError("curvatures must hold at least one layer, got an empty dict")
    figure, ax = axes(ax, size=SIZE_WITH_LEGEND)
    top = max(float(k.max()) for k in curvatures.values())
    for index, (name, k) in enumerate(curvatures.items()):
        array = k.detach().float().cpu().numpy()
        ax.hist(array, bins, range=(0, top), histtype="step", linewidth=1.6, **style(index), label=name)
    tidy(ax, xlabel="curvature k", ylabel="filters", legend=True)
    return figure, ax
