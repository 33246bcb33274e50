"""Contact sheets: pictures side by side with a line of text each, such as confused pairs or similar identities."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor

from .canvas import axes

Strip = tuple[Sequence[Shaped[Tensor, "c h w"]], str]
TEXT = 0.45  # height of the text above a strip, in units of a picture's height
GAP = 0.12  # between pictures and between strips


def plot_contact_sheet(
    strips: Sequence[Strip], *, title: str = "", columns: int = 3, ax: Any = None
) -> tuple[Any, Any]:
    """Draw strips of pictures, each with its text above, in a grid, and return ``(fig, ax)``.

    Args:
        strips: Pictures of one size, 8-bit or in [0, 1], and the text over them, of at most two lines.
        title: Title of the sheet.
        columns: Strips beside each other.
        ax: Axes to draw on; None makes a new figure.

    >>> fig, ax = plot_contact_sheet([([torch.zeros(1, 8, 8), torch.ones(1, 8, 8)], "a and b: 0.93")])
    >>> ax.texts[0].get_text()
    'a and b: 0.93'
    """
    if not strips or not all(pictures for pictures, _ in strips) or columns < 1:
        raise ValueError(
            f"strips must hold pictures and columns be ≥ 1, got {len(strips)} strips and {columns} columns"
        )
    columns = min(columns, len(strips))
    rows = -(-len(strips) // columns)
    first = strips[0][0][0]
    aspect = first.shape[2] / first.shape[1]
    longest = max(len(pictures) for pictures, _ in strips)
    wide, tall = longest * (aspect + GAP) + GAP, 1 + TEXT + GAP
    figure, ax = axes(ax, size=(1.1 * wide * columns + 0.2, 1.1 * tall * rows + 0.4))
    for i, (pictures, text) in enumerate(strips):
        left, top = i % columns * wide, -(i // columns) * tall
        ax.text(left, top - 0.03, text, fontsize=6, va="top")
        for j, picture in enumerate(pictures):
            start = left + j * (aspect + GAP)
            place = (start, start + aspect, top - TEXT - 1, top - TEXT)
            ax.imshow(_drawable(picture), cmap="gray", vmin=0, vmax=1, extent=place)
    ax.set(xlim=(-GAP, columns * wide), ylim=(-rows * tall, GAP), title=title, aspect="equal")
    ax.axis("off")
    return figure, ax


def _drawable(picture: Shaped[Tensor, "c h w"]) -> Any:
    scaled = (picture.float() / 255 if picture.dtype == torch.uint8 else picture.float()).clamp(0, 1).cpu()
    return (scaled[:3].permute(1, 2, 0) if scaled.shape[0] >= 3 else scaled[0]).numpy()
