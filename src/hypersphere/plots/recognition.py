"""How well features recognise: ROC, CMC, and the cosines between classes (fig. 2.5)."""

from collections.abc import Mapping, Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor

from ..geometry import cosine
from ._canvas import axes, color, style, tidy

Curve = tuple[Sequence[float] | Tensor, Sequence[float] | Tensor]


def plot_roc(curves: Mapping[str, Curve], *, log: bool = True, ax: Any = None) -> tuple[Any, Any]:
    """True accept rate over false accept rate; ``curves`` maps a name to ``(far, tar)``."""
    figure, ax = axes(ax)
    for index, (name, (far, tar)) in enumerate(curves.items()):
        ax.plot(far, tar, **style(index), linewidth=1.8, label=name)
    if log:
        ax.set_xscale("log")
    ax.set_ylim(0, 1.02)
    tidy(ax, xlabel="false accept rate", ylabel="true accept rate", legend=True)
    return figure, ax


def plot_cmc(curves: Mapping[str, Sequence[float] | Tensor], *, ax: Any = None) -> tuple[Any, Any]:
    """Probes whose mate is among the first k, over k = 1, 2, …"""
    figure, ax = axes(ax)
    for index, (name, rates) in enumerate(curves.items()):
        ax.plot(
            range(1, len(rates) + 1), rates, color=color(index), marker="o", markersize=3, linewidth=1.6, label=name
        )
    ax.set_ylim(top=1.02)
    ax.xaxis.get_major_locator().set_params(integer=True)
    tidy(ax, xlabel="rank", ylabel="identification rate", legend=True)
    return figure, ax


def plot_cosine_confusion(
    vectors: Float[Tensor, "c d"], *, names: Sequence[str] | None = None, ax: Any = None
) -> tuple[Any, Any]:
    """The cosine between every two classes, from their weights or feature means; the diagonal is 1."""
    figure, ax = axes(ax, size=(5.0, 4.4))
    image = ax.imshow(
        cosine(vectors, vectors, pairwise=True).detach().float().cpu().numpy(), cmap="RdBu_r", vmin=-1, vmax=1
    )
    if names is not None:
        ax.set_xticks(range(len(names)), names, rotation=90)
        ax.set_yticks(range(len(names)), names)
    figure.colorbar(image, ax=ax, label="cos θ", shrink=0.85)
    return figure, ax
