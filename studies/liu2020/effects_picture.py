"""A figure of all checks: measured effects with their intervals, and published effects."""

import math
from collections.abc import Sequence
from typing import Any

from hypersphere._extras import require
from hypersphere.plots import tidy

from .claim import Check, Claim, Outcome
from .effects import Effect

COLORS = {
    "holds": "#1b7837",
    "undecided": "#878787",
    "smaller than published": "#8c6d31",
    "reversed": "#b2182b",
    "not measured": "#d0d0d0",
}
LINEAR_PERCENT = 1.0  # the axis is linear up to here, then logarithmic
MAX_PERCENT = 3000.0  # larger effects are drawn here

Line = tuple[Check, Outcome, Effect | None]


def draw_effects(claims: Sequence[tuple[Claim, Sequence[Line]]]) -> Any:
    """Draw one line per check: the change relative to the compared value, positive if it agrees with the claim.

    The axis is linear within ± 1 % and logarithmic beyond. A diamond is the published change. Checks without rows are not drawn; the
    title of their claim counts them.
    """
    drawn = [(claim, [line for line in lines if line[2] is not None], len(lines)) for claim, lines in claims]
    drawn = [(claim, lines, count) for claim, lines, count in drawn if lines]
    heights = [len(lines) + 1.2 for _, lines, _ in drawn]
    figure = require("matplotlib.figure").Figure(figsize=(9.5, 0.6 + 0.19 * sum(heights)), layout="constrained")
    if not drawn:
        return figure
    axes = figure.subplots(len(drawn), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    for ax, (claim, lines, count) in zip(axes, drawn, strict=True):
        for y, line in enumerate(lines):
            _draw_effect(ax, y, *line)
        ax.axvline(0, color="black", linewidth=0.8)
        ax.set_yticks(range(len(lines)), [check.name for check, _, _ in lines], fontsize=6)
        ax.set(xscale="symlog", ylim=(len(lines) - 0.4, -0.6), xlim=(-MAX_PERCENT, MAX_PERCENT))
        ax.set_xscale("symlog", linthresh=LINEAR_PERCENT)
        ax.set_title(f"{claim.id}: {len(lines)} of {count} checks measured", fontsize=7, loc="left", pad=2)
        tidy(ax)
        ax.tick_params(labelsize=6)
    axes[-1].set_xlabel("change relative to the compared value (%), positive = as claimed; ◆ published", fontsize=7)
    return figure


def _draw_effect(ax: Any, y: int, check: Check, outcome: Outcome, effect: Effect | None) -> None:
    assert effect is not None
    sign = 1 if check.larger else -1
    middle, low, high = (_clip(sign * value) for value in effect.relative)
    ax.plot([low, high], [y, y], color=COLORS[outcome], linewidth=1.6, solid_capstyle="butt")
    ax.plot([middle], [y], color=COLORS[outcome], marker="o", markersize=3.5)
    if check.published_change is not None:
        ax.plot(
            [_clip(sign * check.published_change)], [y], color="#2166ac", marker="D", markersize=3, linestyle="none"
        )


def _clip(value: float) -> float:
    return (
        math.copysign(min(abs(value), MAX_PERCENT), value)
        if math.isfinite(value)
        else math.copysign(MAX_PERCENT, value)
    )
