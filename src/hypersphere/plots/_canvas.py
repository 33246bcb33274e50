"""What every picture shares: a colour-blind safe palette, and axes made on request."""

from typing import Any

from .._extras import require

# Okabe and Ito's eight colours, told apart under the common colour-vision deficiencies; two paler ones for tens of classes.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000", "#999999", "#88CCEE")


INSIDE = 5  # entries of a legend; more would cover the curves and go beside them
STYLES = ("-", "--", ":")


def axes(ax: Any = None, *, size: tuple[float, float] = (5.0, 4.0), projection: str | None = None) -> tuple[Any, Any]:
    """The figure and axes to draw on: the caller's, or new ones."""
    if ax is not None:
        return ax.figure, ax
    pyplot = require("matplotlib.pyplot")
    figure = pyplot.figure(figsize=size, layout="constrained")
    return figure, figure.add_subplot(projection=projection)


def color(index: int) -> str:
    """The colour of the ``index``-th class or curve; they repeat after ten."""
    return PALETTE[index % len(PALETTE)]


def style(index: int) -> dict[str, str]:
    """Colour and dashes of the ``index``-th curve, told apart up to thirty."""
    return {"color": color(index), "linestyle": STYLES[index // len(PALETTE) % len(STYLES)]}


def tidy(ax: Any, *, title: str = "", xlabel: str = "", ylabel: str = "", legend: bool = False) -> None:
    """Labels, and no box where it says nothing."""
    ax.set(title=title, xlabel=xlabel, ylabel=ylabel)
    ax.spines[["top", "right"]].set_visible(False)
    if legend:
        many = len(ax.get_legend_handles_labels()[1]) > INSIDE
        beside = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5), "fontsize": "small"}
        ax.legend(frameon=False, **(beside if many else {}))
