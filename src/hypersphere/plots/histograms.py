"""Distributions: angles of positive and negative pairs (fig. 2.7), learned sigmoid curvatures (fig. 3.4)."""

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..geometry import angle
from ._canvas import axes, color, tidy


def plot_angle_histogram(
    features: Float[Tensor, "n d"], labels: Int[Tensor, " n"], *, bins: int = 60, title: str = "", ax: Any = None
) -> tuple[Any, Any]:
    """Angles between all pairs of features, of the same class and of different classes, in degrees.

    Returns ``(fig, ax)``. Each histogram has unit area.
    """
    if len(features) < 2:
        raise ValueError(f"pairs need at least two features, got {len(features)}")
    figure, ax = axes(ax)
    degrees = angle(features, features, pairwise=True).detach().cpu() * (180 / math.pi)
    first, second = torch.triu_indices(len(features), len(features), 1)
    same = (labels[first] == labels[second]).cpu()
    pairs = degrees[first, second]
    for index, (name, chosen) in enumerate((("same class", same), ("different classes", ~same))):
        if chosen.any():
            ax.hist(
                pairs[chosen].numpy(),
                bins=bins,
                range=(0, 180),
                density=True,
                alpha=0.6,
                color=color(index),
                label=name,
            )
    ax.set_xticks([0, 45, 90, 135, 180])
    tidy(ax, title=title, xlabel="angle between two features (degrees)", ylabel="density", legend=True)
    return figure, ax


def plot_learned_k(curvatures: dict[str, Float[Tensor, " n"]], *, bins: int = 30, ax: Any = None) -> tuple[Any, Any]:
    """The curvature k of learnable sigmoid operators, one outline a layer."""
    if not curvatures:
        raise ValueError("curvatures must hold at least one layer, got an empty dict")
    figure, ax = axes(ax)
    top = max(float(k.max()) for k in curvatures.values())
    for index, (name, k) in enumerate(curvatures.items()):
        ax.hist(
            k.detach().float().cpu().numpy(),
            bins=bins,
            range=(0, top),
            histtype="step",
            linewidth=1.6,
            color=color(index),
            label=name,
        )
    tidy(ax, xlabel="k", ylabel="filters", legend=True)
    return figure, ax
