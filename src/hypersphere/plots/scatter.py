"""Scatter plots of features on the circle or the sphere, colored and labeled by class (fig. 2.2, A.5, 5.1)."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .._extras import require
from ..geometry import normalize
from .canvas import axes, color

MAX_NAMED_CLASSES = 20  # more names would hide the points


def plot_features(
    features: Float[Tensor, "n d"],
    labels: Int[Tensor, " n"],
    *,
    centers: Float[Tensor, "c d"] | None = None,
    names: Sequence[str] | None = None,
    on_sphere: bool = True,
    far_side: bool = False,
    view: tuple[float, float] | None = None,
    size: float = 6,
    title: str = "",
    ax: Any = None,
) -> tuple[Any, Any]:
    """Draw two- or three-dimensional features, colored by class, with the name of each class near its mean direction.

    Args:
        features: Features ``(n, 2)`` or ``(n, 3)``.
        labels: Class of each feature.
        centers: Class weights or means ``(classes, d)``, drawn as rays; row c belongs to label c.
        names: Name of each label; by default its number. Up to twenty classes are named.
        on_sphere: Whether to draw only directions. Otherwise lengths are kept, as in fig. 2.2.
        far_side: Whether to draw points on the far side of the sphere. By default the sphere hides them, so that they are not
            mistaken for points on the near side.
        view: Elevation and azimuth of the viewer in degrees; by default the view in which most class means, and then most
            features, are visible.
        size: Area of a point in square points.
        title: Title of the chart.
        ax: Axes to draw on, three-dimensional ones for three-dimensional features; None makes a new figure.

    Returns:
        ``(fig, ax)``.

    >>> fig, ax = plot_features(torch.eye(3), torch.arange(3), names=["red", "green", "blue"])
    >>> [text.get_text() for text in ax.texts]
    ['red', 'green', 'blue']
    >>> fig, ax = plot_features(torch.eye(3), torch.arange(3), view=(30, -60))  # the second axis is on the far side
    >>> [text.get_text() for text in ax.texts]
    ['0', '2']
    """
    dim = features.shape[1]
    if dim not in (2, 3):
        raise ValueError(f"features must have 2 or 3 dimensions to be drawn, got {dim}")
    figure, ax = axes(ax, size=(4.5, 4.5), projection="3d" if dim == 3 else None)
    points = (normalize(features) if on_sphere else features).detach().float().cpu()
    reach = float(points.norm(dim=1).max()) if len(points) else 1.0
    classes = labels.unique().tolist()
    if dim == 3:
        elevation, azimuth = view or best_view(points, labels.cpu())
        ax.view_init(elevation, azimuth)
    for index, label in enumerate(classes):
        members = points[(labels == label).cpu()]
        visible = members if far_side else members[_is_on_near_side(ax, members)]
        options: dict[str, Any] = {"depthshade": False} if dim == 3 else {}  # shading would look like another class
        options |= {"color": color(index), "alpha": 0.6, "linewidths": 0, "zorder": 2}
        ax.scatter(*visible.T.numpy(), s=size, label=str(label), **options)
        mean = normalize(members.mean(0))
        if centers is not None:
            ray = normalize(centers[label].detach().float().cpu())
            if far_side or bool(_is_on_near_side(ax, ray[None])):
                ax.plot(*[(0.0, reach * float(t)) for t in ray], color=color(index), linewidth=1.2, zorder=3)
        if 1 < len(classes) <= MAX_NAMED_CLASSES and (far_side or bool(_is_on_near_side(ax, mean[None]))):
            _write_name(ax, reach * mean, str(label) if names is None else names[label], color(index))
    _draw_frame(ax, dim, reach, far_side)
    ax.set_title(title, y=1.0 if dim == 3 else None)  # otherwise the zoomed sphere moves the title off the canvas
    return figure, ax


def plot_neurons(
    weight: Float[Tensor, "n d"],
    *,
    half_space: bool = False,
    far_side: bool = False,
    view: tuple[float, float] | None = None,
    title: str = "",
    ax: Any = None,
) -> tuple[Any, Any]:
    """Draw neurons as points on the circle or sphere; ``half_space`` adds their opposites as hollow points (fig. 5.1).

    The other arguments are those of :func:`plot_features`.

    >>> fig, ax = plot_neurons(torch.eye(2), half_space=True)
    >>> len(ax.collections)
    2
    """
    owner = torch.zeros(len(weight), dtype=torch.long, device=weight.device)
    figure, ax = plot_features(weight, owner, size=24, far_side=far_side, view=view, title=title, ax=ax)
    if half_space:
        opposite = -normalize(weight).detach().float().cpu()
        visible = opposite if far_side else opposite[_is_on_near_side(ax, opposite)]
        ax.scatter(*visible.T.numpy(), s=24, facecolors="none", edgecolors=color(0), linewidths=0.7)
    return figure, ax


def _write_name(ax: Any, mean: Float[Tensor, "d"], text: str, class_color: str) -> None:
    """Write the name of a class next to its mean, away from the center of the chart, with a white outline."""
    reach = mean.norm()
    offset = mean / reach
    if len(mean) == 3:  # move the name in the plane of the screen
        eye, top = eye_direction(ax.elev, ax.azim), eye_direction(ax.elev + 90, ax.azim)
        offset = offset - (offset @ eye) * eye
        offset = normalize(offset) if offset.norm() > 0.25 else top
    dark = [0.7 * part for part in require("matplotlib.colors").to_rgb(class_color)]  # yellow on white is hard to read
    options = {"ha": "center", "va": "center", "fontsize": "medium", "fontweight": "bold", "color": dark, "zorder": 4}
    outline = require("matplotlib.patheffects").withStroke(linewidth=2.5, foreground="white")
    ax.text(*(mean + 0.14 * reach * offset).tolist(), text, path_effects=[outline], **options)


def _is_on_near_side(ax: Any, points: Float[Tensor, "n d"]) -> Bool[Tensor, "n"]:
    """Return whether each point is on the near side of the sphere; true for all points in the plane."""
    if points.shape[1] == 2:
        return torch.ones(len(points), dtype=torch.bool)
    return points @ eye_direction(ax.elev, ax.azim) >= 0


def eye_direction(elevation: float, azimuth: float) -> Float[Tensor, "3"]:
    """Return the direction from the center of the sphere to the viewer, given elevation and azimuth in degrees.

    >>> eye_direction(90, 0).round().tolist()
    [0.0, 0.0, 1.0]
    """
    up, around = math.radians(elevation), math.radians(azimuth)
    return torch.tensor([math.cos(up) * math.cos(around), math.cos(up) * math.sin(around), math.sin(up)])


def best_view(points: Float[Tensor, "n 3"], labels: Int[Tensor, " n"]) -> tuple[float, float]:
    """Return the elevation and azimuth in degrees with the most visible class means.

    Of several such views, the one with the most visible points is chosen, and then the one in which points are nearest.

    >>> best_view(torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([0]))
    (60.0, -60.0)
    """
    names, owner = labels.unique(return_inverse=True)
    means = normalize(points.new_zeros(len(names), 3).index_add_(0, owner, points))
    views = [(float(up), float(about)) for up in (30, 0, 60) for about in range(-60, 300, 15)]

    def rate_view(view: tuple[float, float]) -> tuple[int, int, float]:
        eye = eye_direction(*view)
        nearness = points @ eye
        return int((means @ eye > 0.2).sum()), int((nearness >= 0).sum()), round(float(nearness.sum()), 4)

    return max(views, key=rate_view)


def _draw_frame(ax: Any, dim: int, reach: float, far_side: bool) -> None:
    """Draw a circle or wire sphere with equal axes and no ticks."""
    t = torch.linspace(0, 2 * torch.pi, 181)
    if dim == 2:
        ax.plot(reach * t.cos(), reach * t.sin(), color="0.8", linewidth=0.8, zorder=0)
        ax.set_aspect("equal")
        ax.axis("off")
        return
    ax.set_proj_type("ortho")  # shows exactly one half of the sphere
    rings = [
        torch.stack([math.cos(a) * t.cos(), math.cos(a) * t.sin(), torch.full_like(t, math.sin(a))], 1)
        for a in torch.linspace(-torch.pi / 3, torch.pi / 3, 5).tolist()
    ]
    rings += [
        torch.stack([t.cos() * math.cos(a), t.cos() * math.sin(a), t.sin()], 1)
        for a in torch.linspace(0, torch.pi, 7)[:-1].tolist()
    ]
    for ring in rings:
        line = reach * ring if far_side else (reach * ring).masked_fill(~_is_on_near_side(ax, ring)[:, None], math.nan)
        ax.plot(*line.T.numpy(), color="0.88", linewidth=0.6, zorder=0)
    # The outline is the great circle through the right and the top of the sphere, as seen by the viewer.
    right, top = eye_direction(0, ax.azim + 90), eye_direction(ax.elev + 90, ax.azim)
    outline = t.cos()[:, None] * right + t.sin()[:, None] * top
    ax.plot(*(reach * outline).T.numpy(), color="0.7", linewidth=0.8, zorder=0)
    ax.set(**{f"{axis}lim": (-reach, reach) for axis in "xyz"})  # the limits of the data would distort the sphere
    ax.set_box_aspect((1, 1, 1), zoom=1.2)  # the default leaves half of the canvas empty
    ax.set_axis_off()
