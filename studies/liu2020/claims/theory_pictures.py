"""The picture of the theory claim: condition number and energy as curves, and reconstructed images."""

import base64
import io
from collections.abc import Sequence
from typing import Any

from hypersphere._extras import require
from hypersphere.plots import color, tidy

from ..arms import Row

IMAGES_PER_LINE = 4
LABELS = {
    "Fourier/phase": "phase kept",
    "Fourier/magnitude": "magnitude kept",
    "autoencoder/product": "whole code",
    "autoencoder/angle": "angles of the code",
    "autoencoder/norm": "norms of the code",
}


def draw_theory(rows: Sequence[Row]) -> Any:
    """Draw two panels of curves above the recorded images."""
    figure = require("matplotlib.figure").Figure(figsize=(9.0, 6.6), layout="constrained")
    upper, lower = figure.subfigures(2, 1, height_ratios=(1, 1.2))
    _draw_curves(upper.add_subplot(1, 2, 1), rows, "conditioning/", "condition", "scale c", "condition of the Hessian")
    _draw_curves(upper.add_subplot(1, 2, 2), rows, "growth/", "energy", "points N", "least energy found")
    _draw_images(lower, {row["arm"]: row["images"] for row in rows if "images" in row})
    return figure


def _draw_curves(ax: Any, rows: Sequence[Row], group: str, key: str, xlabel: str, ylabel: str) -> None:
    arms = dict.fromkeys(row["arm"] for row in rows if row["arm"].startswith(group))
    for number, arm in enumerate(arms):
        for row in (row for row in rows if row["arm"] == arm):
            label = arm.removeprefix(group) if row["seed"] == 0 else None
            ax.plot(row["curve"]["step"], row["curve"][key], color=color(number), marker=".", linewidth=1, label=label)
    ax.set(xscale="log", yscale="log")
    marks = sorted({step for row in rows if row["arm"].startswith(group) for step in row["curve"]["step"]})
    ax.set_xticks(marks, [f"{mark:g}" for mark in marks])
    ax.minorticks_off()
    tidy(ax, xlabel=xlabel, ylabel=ylabel, legend=bool(ax.get_lines()))


def _draw_images(figure: Any, images: dict[str, dict[str, list[str]]]) -> None:
    """Draw two blocks side by side: the original images, then one line per reconstruction."""
    blocks = [
        [arm for arm in LABELS if arm in images and arm.startswith(kind)] for kind in ("Fourier/", "autoencoder/")
    ]
    for block, arms in zip(figure.subfigures(1, 2), blocks, strict=True):
        if not arms:
            continue
        lines = [("original", images[arms[0]]["given"]), *((LABELS[arm], images[arm]["made"]) for arm in arms)]
        for i, (label, pictures) in enumerate(lines):
            for j, picture in enumerate(pictures[:IMAGES_PER_LINE]):
                ax = block.add_subplot(len(lines), IMAGES_PER_LINE, 1 + i * IMAGES_PER_LINE + j)
                ax.imshow(_decode_png(picture), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
                ax.set(xticks=[], yticks=[])
                if j == 0:
                    ax.set_ylabel(label.replace(" ", "\n", 1), fontsize=7, rotation=0, ha="right", va="center")


def _decode_png(text: str) -> Any:
    image = require("PIL.Image").open(io.BytesIO(base64.b64decode(text)))
    return require("numpy").asarray(image)
