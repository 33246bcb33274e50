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

MAX_LABELED = 20  # classes that are named in the picture; more names would cover the points


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
    """Draw two- or three-dimensional features by class, each class named beside its mean direction.

    Args:
        features: Features ``(n, 2)`` or ``(n, 3)``.
        labels: The class of each feature.
        centers: Class weights or means ``(classes, d)``, drawn as rays; row c belongs to label c.
        names: What label c is called in the picture; None writes the number. Up to twenty classes are named.
        on_sphere: Whether directions only are shown; without it lengths are kept, as in fig. 2.2.
        far_side: Whether points on the far side of the sphere are drawn as if it were glass. By default the sphere
            hides them, so that no point is mistaken for one in front.
        view: Elevation and azimuth of the eye before the sphere, in degrees; None looks from where most classes, and
            then most features, are in sight.
        size: Area of a point in square points.
        title: Title of the picture.
        ax: Axes to draw on, 3-D ones for three-dimensional features; None makes a new figure.

    Returns:
        ``(fig, ax)``.

    >>> fig, ax = plot_features(torch.eye(3), torch.arange(3), names=["red", "green", "blue"])
    >>> [text.get_text() for text in ax.texts]
    ['red', 'green', 'blue']
    >>> fig, ax = plot_features(torch.eye(3), torch.arange(3), view=(30, -60))  # the second axis is behind
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
        mine = points[(labels == label).cpu()]
        shown = mine if far_side else mine[_near(ax, mine)]
        look: dict[str, Any] = {"depthshade": False} if dim == 3 else {}  # a shade would look like a paler class
        look |= {"color": color(index), "alpha": 0.6, "linewidths": 0, "zorder": 2}
        ax.scatter(*shown.T.numpy(), s=size, label=str(label), **look)
        middle = normalize(mine.mean(0))
        if centers is not None:
            ray = normalize(centers[label].detach().float().cpu())
            if far_side or bool(_near(ax, ray[None])):
                ax.plot(*[(0.0, reach * float(t)) for t in ray], color=color(index), linewidth=1.2, zorder=3)
        if 1 < len(classes) <= MAX_LABELED and (far_side or bool(_near(ax, middle[None]))):
            _name(ax, reach * middle, str(label) if names is None else names[label], color(index))
    _frame(ax, dim, reach, far_side)
    ax.set_title(title, y=1.0 if dim == 3 else None)  # a zoomed sphere would push it off the canvas
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
    """Draw neurons as points of the circle or sphere; ``half_space`` adds their opposites, hollow (fig. 5.1).

    Points on the far side of the sphere are hidden unless ``far_side`` is given; ``view`` is where the eye is, both as
    in :func:`plot_features`.

    >>> fig, ax = plot_neurons(torch.eye(2), half_space=True)
    >>> len(ax.collections)
    2
    """
    owner = torch.zeros(len(weight), dtype=torch.long, device=weight.device)
    figure, ax = plot_features(weight, owner, size=24, far_side=far_side, view=view, title=title, ax=ax)
    if half_space:
        opposite = -normalize(weight).detach().float().cpu()
        shown = opposite if far_side else opposite[_near(ax, opposite)]
        ax.scatter(*shown.T.numpy(), s=24, facecolors="none", edgecolors=color(0), linewidths=0.7)
    return figure, ax


def _name(ax: Any, middle: Float[Tensor, "d"], text: str, tint: Any) -> None:
    """Write a class's name beside its middle, away from the picture's center, with a white rim so that points do not hide it."""
    reach = middle.norm()
    aside = middle / reach
    if len(middle) == 3:
        up, about = math.radians(ax.elev), math.radians(ax.azim)
        aside = aside - (aside @ eye_direction(ax.elev, ax.azim)) * eye_direction(ax.elev, ax.azim)
        top = torch.tensor([-math.sin(up) * math.cos(about), -math.sin(up) * math.sin(about), math.cos(up)])
        aside = normalize(aside) if aside.norm() > 0.25 else top
    dark = [0.7 * part for part in require("matplotlib.colors").to_rgb(tint)]  # yellow on white cannot be read
    look = {"ha": "center", "va": "center", "fontsize": "medium", "fontweight": "bold", "color": dark, "zorder": 4}
    rim = require("matplotlib.patheffects").withStroke(linewidth=2.5, foreground="white")
    ax.text(*(middle + 0.14 * reach * aside).tolist(), text, path_effects=[rim], **look)


def _near(ax: Any, points: Float[Tensor, "n d"]) -> Bool[Tensor, "n"]:
    """Return which points are on the viewer's side of the sphere; all of them in the plane."""
    if points.shape[1] == 2:
        return torch.ones(len(points), dtype=torch.bool)
    return points @ eye_direction(ax.elev, ax.azim) >= 0


def eye_direction(elevation: float, azimuth: float) -> Float[Tensor, "3"]:
    """Return the direction from which the sphere is measure_view, of an elevation and an azimuth in degrees.

    >>> eye_direction(90, 0).round().tolist()
    [0.0, 0.0, 1.0]
    """
    up, about = math.radians(elevation), math.radians(azimuth)
    return torch.tensor([math.cos(up) * math.cos(about), math.cos(up) * math.sin(about), math.sin(up)])


def best_view(points: Float[Tensor, "n 3"], labels: Int[Tensor, " n"]) -> tuple[float, float]:
    """Return the elevation and azimuth, in degrees, with most class means well in sight, then most points, then the nearest.

    >>> best_view(torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([0]))
    (60.0, -60.0)
    """
    names, owner = labels.unique(return_inverse=True)
    means = normalize(points.new_zeros(len(names), 3).index_add_(0, owner, points))
    views = [(float(up), float(about)) for up in (30, 0, 60) for about in range(-60, 300, 15)]

    def measure_view(view: tuple[float, float]) -> tuple[int, int, float]:
        depth, eye = points @ eye_direction(*view), eye_direction(*view)
        return int((means @ eye > 0.2).sum()), int((depth >= 0).sum()), round(float(depth.sum()), 4)

    return max(views, key=measure_view)


def _frame(ax: Any, dim: int, reach: float, far_side: bool) -> None:
    """Draw a circle or wire sphere with equal axes and no ticks."""
    t = torch.linspace(0, 2 * torch.pi, 181)
    if dim == 2:
        ax.plot(reach * t.cos(), reach * t.sin(), color="0.8", linewidth=0.8, zorder=0)
        ax.set_aspect("equal")
        ax.axis("off")
        return
    ax.set_proj_type("ortho")  # so that exactly one half of the sphere is in view
    rings = [
        torch.stack([math.cos(a) * t.cos(), math.cos(a) * t.sin(), torch.full_like(t, math.sin(a))], 1)
        for a in torch.linspace(-torch.pi / 3, torch.pi / 3, 5).tolist()
    ]
    rings += [
        torch.stack([t.cos() * math.cos(a), t.cos() * math.sin(a), t.sin()], 1)
        for a in torch.linspace(0, torch.pi, 7)[:-1].tolist()
    ]
    for ring in rings:
        line = reach * ring if far_side else (reach * ring).masked_fill(~_near(ax, ring)[:, None], math.nan)
        ax.plot(*line.T.numpy(), color="0.88", linewidth=0.6, zorder=0)
    ax.plot(*(reach * _outline(ax, t)).T.numpy(), color="0.7", linewidth=0.8, zorder=0)
    ax.set(**{f"{axis}lim": (-reach, reach) for axis in "xyz"})  # limits of the data would squeeze the sphere
    ax.set_box_aspect((1, 1, 1), zoom=1.2)  # the default leaves half the canvas white
    ax.set_axis_off()


def _outline(ax: Any, t: Float[Tensor, "m"]) -> Float[Tensor, "m 3"]:
    """Return the great circle that bounds the visible half."""
    up, round_about = math.radians(ax.elev), math.radians(ax.azim)
    right = torch.tensor([-math.sin(round_about), math.cos(round_about), 0.0])
    top = torch.tensor([-math.sin(up) * math.cos(round_about), -math.sin(up) * math.sin(round_about), math.cos(up)])
    return t.cos()[:, None] * right + t.sin()[:, None] * top
