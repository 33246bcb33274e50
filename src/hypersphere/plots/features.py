"""Features where they live: on the circle or the sphere, coloured by class (fig. 2.2, A.5, 5.1)."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..geometry import normalize
from ._canvas import axes, color


def plot_features(
    features: Float[Tensor, "n d"],
    labels: Int[Tensor, " n"],
    *,
    centers: Float[Tensor, "c d"] | None = None,
    on_sphere: bool = True,
    size: float = 6,
    title: str = "",
    ax: Any = None,
) -> tuple[Any, Any]:
    """Two- or three-dimensional features by class; ``centers`` (class weights or means) are drawn as rays.

    ``on_sphere`` shows directions only; without it the lengths are kept, as in the text's two-dimensional pictures.
    Returns ``(fig, ax)``; a given ``ax`` must be a 3-D one for three-dimensional features.
    """
    dim = features.shape[1]
    if dim not in (2, 3):
        raise ValueError(f"features must have 2 or 3 dimensions to be drawn, got {dim}")
    figure, ax = axes(ax, size=(4.5, 4.5), projection="3d" if dim == 3 else None)
    points = (normalize(features) if on_sphere else features).detach().float().cpu()
    reach = float(points.norm(dim=1).max()) if len(points) else 1.0
    for index, label in enumerate(labels.unique().tolist()):
        chosen = points[(labels == label).cpu()]
        ax.scatter(*chosen.T.numpy(), s=size, color=color(index), alpha=0.6, linewidths=0, label=str(label))
        if centers is not None:
            tip = reach * normalize(centers[label]).detach().float().cpu()
            ax.plot(*[(0.0, float(t)) for t in tip], color=color(index), linewidth=1.2)
    _frame(ax, dim, reach)
    ax.set_title(title, y=0.97 if dim == 3 else None)  # a zoomed sphere would push it off the canvas
    return figure, ax


def plot_neurons(
    weight: Float[Tensor, "n d"], *, half_space: bool = False, title: str = "", ax: Any = None
) -> tuple[Any, Any]:
    """Neurons as points of the circle or sphere; ``half_space`` adds their opposites, hollow (fig. 5.1)."""
    figure, ax = plot_features(weight, torch.zeros(len(weight), dtype=torch.long), size=24, title=title, ax=ax)
    if half_space:
        ax.scatter(
            *(-normalize(weight)).detach().float().cpu().T.numpy(),
            s=24,
            facecolors="none",
            edgecolors=color(0),
            linewidths=0.7,
        )
    return figure, ax


def _frame(ax: Any, dim: int, reach: float) -> None:
    """A unit circle or wire sphere, equal axes, no ticks: the position is the message."""
    t = torch.linspace(0, 2 * torch.pi, 73)
    if dim == 2:
        ax.plot(reach * t.cos(), reach * t.sin(), color="0.8", linewidth=0.8, zorder=0)
        ax.set_aspect("equal")
        ax.axis("off")
        return
    for latitude in torch.linspace(-torch.pi / 3, torch.pi / 3, 5).tolist():
        ring = reach * torch.cos(torch.tensor(latitude))
        height = torch.full_like(t, reach * float(torch.sin(torch.tensor(latitude))))
        ax.plot(ring * t.cos(), ring * t.sin(), height, color="0.88", linewidth=0.6, zorder=0)
    for longitude in torch.linspace(0, torch.pi, 7)[:-1].tolist():
        east, north = float(torch.cos(torch.tensor(longitude))), float(torch.sin(torch.tensor(longitude)))
        ax.plot(reach * t.cos() * east, reach * t.cos() * north, reach * t.sin(), color="0.88", linewidth=0.6, zorder=0)
    ax.set_box_aspect((1, 1, 1), zoom=1.45)  # the default leaves half the canvas white
    ax.set_axis_off()
