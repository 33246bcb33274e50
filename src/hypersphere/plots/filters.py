"""The filters of a network's first layer as small images (section C.5)."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .canvas import axes


def plot_filters(weight: Float[Tensor, "n c h w"], *, columns: int | None = None, ax: Any = None) -> tuple[Any, Any]:
    """Draw the filters of a convolution in a grid, each scaled to its own range, and return ``(fig, ax)``.

    Filters with three channels are drawn in color. For other filters, only the first channel is drawn. ``columns`` is the
    number of columns of the grid. If it is None, the grid is approximately square.

    >>> fig, ax = plot_filters(torch.rand(6, 3, 5, 5), columns=3)
    """
    n, channels, height, width = weight.shape
    columns = columns or math.ceil(math.sqrt(n))
    rows = math.ceil(n / columns)
    pictures = weight.detach().float().cpu()[:, : 3 if channels == 3 else 1]
    low, high = pictures.flatten(1).amin(1), pictures.flatten(1).amax(1)
    span = torch.where(high > low, high - low, 1).reshape(-1, 1, 1, 1)
    pictures = (pictures - low.reshape(-1, 1, 1, 1)) / span
    grid = torch.ones(rows * (height + 1) - 1, columns * (width + 1) - 1, pictures.shape[1])
    for i, picture in enumerate(pictures):
        top, left = i // columns * (height + 1), i % columns * (width + 1)
        grid[top : top + height, left : left + width] = picture.permute(1, 2, 0)
    figure, ax = axes(ax, size=(0.6 * columns + 0.4, 0.6 * rows + 0.4))
    ax.imshow((grid if grid.shape[-1] == 3 else grid[..., 0]).numpy(), cmap="gray", vmin=0, vmax=1)
    ax.axis("off")
    return figure, ax
