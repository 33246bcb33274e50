"""Charts of recognition: ROC, DET, CMC and identification curves, and the cosines between classes (fig. 2.5); contact sheets."""

from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from ..geometry import cosine
from .canvas import axes, style, tidy
from .histograms import SIZE_WITH_LEGEND

Values = Sequence[float] | Tensor
Curve = tuple[Values, Values]
Strip = tuple[Sequence[Shaped[Tensor, "c h w"]], str]
TEXT_HEIGHT = 0.45  # of the text above a strip, in heights of a picture
GAP = 0.12  # between pictures and between strips, in heights of a picture


def plot_roc(
    curves: Mapping[str, Curve], *, log: bool = True, identification: bool = False, title: str = "", ax: Any = None
) -> tuple[Any, Any]:
    """Draw true accept rates over false accept rates, as steps, and return ``(fig, ax)``.

    Args:
        curves: ``(far, tar)`` by name in the legend, as fractions, in increasing order of ``far``.
        log: Whether the axis of the false accept rate is logarithmic. Rates of 0 are then not drawn.
        identification: Whether to label the axes as rates of open-set identification (FPIR, TPIR).
        title: Title of the chart.
        ax: Axes to draw on; None makes a new figure.

    >>> fig, ax = plot_roc({"ours": ([0.001, 0.01, 1.0], [0.6, 0.9, 1.0])})
    >>> ax.get_xlabel()
    'false accept rate'
    """
    figure, ax = axes(ax, size=SIZE_WITH_LEGEND)
    for index, (name, (far, tar)) in enumerate(curves.items()):
        far, tar = _to_array(far), _to_array(tar)
        keep = far > 0 if log else far >= 0
        ax.plot(far[keep], tar[keep], **style(index), drawstyle="steps-post", linewidth=1.8, label=name)
    if log:
        ax.set_xscale("log")
    ax.set_ylim(0, 1.02)
    kind = "positive identification rate" if identification else "accept rate"
    tidy(ax, title=title, xlabel=f"false {kind}", ylabel=f"true {kind}", legend=True)
    return figure, ax


def plot_rejection(curves: Mapping[str, Curve], *, far: str = "", title: str = "", ax: Any = None) -> tuple[Any, Any]:
    """Draw false reject rates over the share of discarded samples and return ``(fig, ax)``.

    Args:
        curves: ``(share, rate)`` by the name of a quality measure, as fractions, in increasing order of the share.
        far: False accept rate of the threshold, for the label of the axis.
        title: Title of the chart.
        ax: Axes to draw on; None makes a new figure.

    >>> fig, ax = plot_rejection({"sharpness": ([0.0, 0.1], [0.02, 0.01])}, far="1e-3")
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('share of discarded pairs', 'false reject rate at FAR 1e-3')
    """
    figure, ax = axes(ax, size=SIZE_WITH_LEGEND)
    for index, (name, (share, rate)) in enumerate(curves.items()):
        ax.plot(_to_array(share), _to_array(rate), **style(index), marker="o", markersize=3, linewidth=1.8, label=name)
    ax.set_ylim(bottom=0)
    label = f"false reject rate at FAR {far}" if far else "false reject rate"
    tidy(ax, title=title, xlabel="share of discarded pairs", ylabel=label, legend=True)
    return figure, ax


def plot_det(curves: Mapping[str, Curve], *, title: str = "", ax: Any = None) -> tuple[Any, Any]:
    """Draw the detection error trade-off, false rejects over false accepts in percent, and return ``(fig, ax)``.

    Both axes are scaled by the quantiles of the normal distribution, on which scores of two normal distributions give
    a straight line. ``curves`` maps a name to ``(far, frr)``, fractions; the ends at 0 and 1 have no place on the axes.

    >>> fig, ax = plot_det({"ours": ([0.01, 0.1, 0.5], [0.3, 0.1, 0.01])})
    >>> ax.get_ylabel()
    'false reject rate (%)'
    """
    figure, ax = axes(ax, size=SIZE_WITH_LEGEND)
    quantile = NormalDist().inv_cdf
    ticks = [0.001, 0.01, 0.05, 0.2, 0.5, 0.8]
    for index, (name, (far, frr)) in enumerate(curves.items()):
        far, frr = _to_array(far), _to_array(frr)
        keep = (far > 0) & (far < 1) & (frr > 0) & (frr < 1)
        x, y = ([quantile(v) for v in rates[keep].tolist()] for rates in (far, frr))
        ax.plot(x, y, **style(index), linewidth=1.8, label=name)
        ticks += [v for v in (1e-6, 1e-5, 1e-4) if len(x) and v >= far[keep].min()]
    ticks = sorted(set(ticks))
    ax.set_xticks([quantile(v) for v in ticks], [f"{100 * v:g}" for v in ticks])
    ax.set_yticks([quantile(v) for v in ticks], [f"{100 * v:g}" for v in ticks])
    tidy(ax, title=title, xlabel="false accept rate (%)", ylabel="false reject rate (%)", legend=True)
    return figure, ax


def plot_cmc(curves: Mapping[str, Values], *, title: str = "", ax: Any = None) -> tuple[Any, Any]:
    """Draw the share of probes whose mate is among the first k, over k = 1, 2, …, and return ``(fig, ax)``.

    ``curves`` maps names to rates. For more than fifty ranks, the axis of ranks is logarithmic.

    >>> fig, ax = plot_cmc({"ours": [0.8, 0.9, 0.95]})
    >>> ax.get_xlabel()
    'rank'
    """
    figure, ax = axes(ax, size=SIZE_WITH_LEGEND)
    longest = max((len(rates) for rates in curves.values()), default=0)
    for index, (name, rates) in enumerate(curves.items()):
        marker = "o" if len(rates) <= 50 else ""
        y = _to_array(rates)
        ax.plot(range(1, len(y) + 1), y, **style(index), marker=marker, markersize=3, linewidth=1.6, label=name)
    if longest > 50:
        ax.set_xscale("log")
    else:
        ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set_ylim(top=1.02)
    tidy(ax, title=title, xlabel="rank", ylabel="identification rate", legend=True)
    return figure, ax


def plot_distractors(
    sizes: Sequence[int], rates: Mapping[str, Values], *, title: str = "", ax: Any = None
) -> tuple[Any, Any]:
    """Draw identification rates over the number of distractors, one line per name (fig. D.5), and return ``(fig, ax)``.

    >>> fig, ax = plot_distractors([10, 100], {"rank 1": [0.9, 0.8], "rank 10": [1.0, 0.95]})
    >>> ax.get_xscale()
    'log'
    """
    figure, ax = axes(ax, size=SIZE_WITH_LEGEND)
    line = "-" if len(sizes) > 2 else ""  # two points show no trend
    for index, (name, values) in enumerate(rates.items()):
        ax.plot(sizes, _to_array(values), color=style(index)["color"], linestyle=line, marker="o", label=name)
    ax.set_xscale("log")
    ax.set_ylim(0, 1.02)
    tidy(ax, title=title, xlabel="distractors", ylabel="identification rate", legend=True)
    return figure, ax


def plot_cosine_confusion(
    vectors: Float[Tensor, "c d"], *, names: Sequence[str] | None = None, ax: Any = None
) -> tuple[Any, Any]:
    """Draw the cosines between all pairs of classes, given their weights or feature means, and return ``(fig, ax)``.

    >>> fig, ax = plot_cosine_confusion(torch.eye(3), names=["a", "b", "c"])
    """
    figure, ax = axes(ax, size=(5.0, 4.4))
    image = ax.imshow(
        cosine(vectors, vectors, pairwise=True).detach().float().cpu().numpy(), cmap="RdBu_r", vmin=-1, vmax=1
    )
    if names is not None:
        ax.set_xticks(range(len(names)), names, rotation=90)
        ax.set_yticks(range(len(names)), names)
    figure.colorbar(image, ax=ax, label="cos θ", shrink=0.85)
    return figure, ax


def plot_contact_sheet(
    strips: Sequence[Strip], *, title: str = "", columns: int = 3, ax: Any = None
) -> tuple[Any, Any]:
    """Draw strips of pictures in a grid, each with its text above it, and return ``(fig, ax)``.

    Args:
        strips: Pictures of one size, 8-bit or in [0, 1], and the text above them, at most two lines.
        title: Title of the sheet.
        columns: Number of strips side by side.
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
    width, height = longest * (aspect + GAP) + GAP, 1 + TEXT_HEIGHT + GAP
    figure, ax = axes(ax, size=(1.1 * width * columns + 0.2, 1.1 * height * rows + 0.4))
    for i, (pictures, text) in enumerate(strips):
        left, top = i % columns * width, -(i // columns) * height
        ax.text(left, top - 0.03, text, fontsize=6, va="top")
        for j, picture in enumerate(pictures):
            start = left + j * (aspect + GAP)
            extent = (start, start + aspect, top - TEXT_HEIGHT - 1, top - TEXT_HEIGHT)
            ax.imshow(_convert_picture(picture), cmap="gray", vmin=0, vmax=1, extent=extent)
    ax.set(xlim=(-GAP, columns * width), ylim=(-rows * height, GAP), title=title, aspect="equal")
    ax.axis("off")
    return figure, ax


def _to_array(values: Values) -> Any:
    """Return numbers in any container as a float64 array on the CPU."""
    return torch.as_tensor(values, dtype=torch.float64).detach().cpu().numpy()


def _convert_picture(picture: Shaped[Tensor, "c h w"]) -> Any:
    """Return a picture as an array for ``imshow``: (h, w, 3) in color or (h, w) in gray."""
    scaled = (picture.float() / 255 if picture.dtype == torch.uint8 else picture.float()).clamp(0, 1).cpu()
    return (scaled[:3].permute(1, 2, 0) if scaled.shape[0] >= 3 else scaled[0]).numpy()
