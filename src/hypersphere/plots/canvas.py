"""Helpers of all charts: a color-blind safe palette, creation of axes, labels and legends."""

from typing import Any

from .._extras import require

# The eight colors of Okabe and Ito, which people with common color-vision deficiencies can distinguish, and two pale ones.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000", "#999999", "#88CCEE")
STYLES = ("-", "--", ":")


def axes(ax: Any = None, *, size: tuple[float, float] = (5.0, 4.0), projection: str | None = None) -> tuple[Any, Any]:
    """Return ``(figure, ax)`` to draw on: the given axes, or axes on a new figure.

    A new figure is not registered globally, so it needs no display and does not have to be closed. Save it with
    ``figure.savefig(path)``.

    Args:
        ax: Matplotlib axes to draw on; None makes new axes.
        size: Width and height of a new figure in inches.
        projection: ``"3d"`` for new three-dimensional axes, None for two-dimensional ones.

    >>> figure, ax = axes(size=(3.0, 2.0))
    >>> axes(ax) == (figure, ax)
    True
    """
    if ax is not None:
        return ax.figure, ax
    figure, (ax,) = panels(1, size=size, projection=projection)
    return figure, ax


def panels(
    columns: int, *, size: tuple[float, float] = (4.0, 3.2), projection: str | None = None
) -> tuple[Any, list[Any]]:
    """Return ``(figure, axes)``: a new figure with ``columns`` panels side by side, each of ``size`` in inches.

    >>> figure, row = panels(3)
    >>> len(row)
    3
    """
    if columns < 1:
        raise ValueError(f"columns must be an integer ≥ 1, got {columns!r}")
    figure = require("matplotlib.figure").Figure(figsize=(columns * size[0], size[1]), layout="constrained")
    return figure, [figure.add_subplot(1, columns, i + 1, projection=projection) for i in range(columns)]


def color(index: int) -> str:
    """Return the color of the ``index``-th class or curve. Colors repeat after ten.

    >>> color(0) == color(10)
    True
    """
    return PALETTE[index % len(PALETTE)]


def style(index: int) -> dict[str, str]:
    """Return the color and line style of the ``index``-th curve as arguments of ``ax.plot``. Styles repeat after thirty.

    >>> style(11)
    {'color': '#E69F00', 'linestyle': '--'}
    """
    return {"color": color(index), "linestyle": STYLES[index // len(PALETTE) % len(STYLES)]}


def tidy(ax: Any, *, title: str = "", xlabel: str = "", ylabel: str = "", legend: bool = False) -> None:
    """Set title and labels, remove the top and right border, and put a legend beside the axes, where it hides no data.

    >>> figure, ax = axes()
    >>> tidy(ax, title="Training", xlabel="step", ylabel="loss")
    >>> ax.get_title(), ax.get_xlabel(), ax.spines["top"].get_visible()
    ('Training', 'step', False)
    """
    ax.set(title=title, xlabel=xlabel, ylabel=ylabel)
    ax.spines[["top", "right"]].set_visible(False)
    if legend and ax.get_legend_handles_labels()[1]:
        ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="small")
