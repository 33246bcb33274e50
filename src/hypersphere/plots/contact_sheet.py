"""Pictures beside each other with a line of text each: pairs that were confused, identities that look alike."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor

from .._extras import require

Strip = tuple[Sequence[Shaped[Tensor, "c h w"]], str]


def plot_contact_sheet(strips: Sequence[Strip], *, title: str = "", columns: int = 3) -> tuple[Any, Any]:
    """Draw strips of pictures, each with its text above, in a grid, and return ``(fig, axes)``.

    Args:
        strips: Pictures of one size each, 8-bit or in [0, 1], and the text over them.
        title: Title of the sheet.
        columns: Strips beside each other.

    >>> fig, axes = plot_contact_sheet([([torch.zeros(1, 8, 8), torch.ones(1, 8, 8)], "a and b: 0.93")])
    >>> axes[0].get_title()
    'a and b: 0.93'
    """
    if not strips or columns < 1:
        raise ValueError(f"strips must hold pictures and columns be ≥ 1, got {len(strips)} strips and {columns}")
    columns = min(columns, len(strips))
    rows = -(-len(strips) // columns)
    wide = max(len(pictures) for pictures, _ in strips)
    figure = require("matplotlib.figure").Figure(
        figsize=(max(1.3 * wide * columns, 4.0), 1.7 * rows + 0.5), layout="constrained"
    )
    axes = []
    for i, (pictures, text) in enumerate(strips):
        ax = figure.add_subplot(rows, columns, i + 1)
        ax.imshow(_side_by_side(pictures), cmap="gray", vmin=0, vmax=1)
        ax.set_title(text, fontsize=6)
        ax.axis("off")
        axes.append(ax)
    if title:
        figure.suptitle(title, fontsize=9)
    return figure, axes


def _side_by_side(pictures: Sequence[Tensor]) -> Any:
    scaled = [p.float() / 255 if p.dtype == torch.uint8 else p.float() for p in pictures]
    gap = torch.ones(scaled[0].shape[0], scaled[0].shape[1], max(scaled[0].shape[2] // 16, 1))
    joined = torch.cat([part for picture in scaled for part in (picture, gap)][:-1], 2).clamp(0, 1)
    return (joined[0] if joined.shape[0] == 1 else joined[:3].permute(1, 2, 0)).numpy()
