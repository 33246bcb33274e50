"""The picture of the demo: example letters with the gallery's answers, and histograms of the cosines of all probes."""

import pathlib
from collections.abc import Sequence

import numpy as np

from ... import plots
from ..._extras import require
from .letter_gallery import ENROLLED, STRANGERS, Probe

COLUMNS, ROWS = 9, 2  # examples per script
RIGHT, WRONG, REJECTED = "tab:green", "tab:red", "tab:gray"


def draw_answers(path: pathlib.Path, probes: Sequence[Probe], threshold: float) -> pathlib.Path:
    """Draw evenly spaced examples of both scripts with the answers, and histograms of the best cosine of every probe.

    Args:
        path: The PNG file to write.
        probes: All identified pictures.
        threshold: The lowest cosine that the gallery accepts.

    Returns:
        The path.
    """
    figures, image = require("matplotlib.figure"), require("PIL.Image")
    figure = figures.Figure(figsize=(12, 5.2), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1.9, 1))
    groups = [
        (script, [probe for probe in probes if probe.letter.startswith(script)]) for script in (ENROLLED, STRANGERS)
    ]
    titles = (
        "Georgian letters in new typefaces: which enrolled letter is it?",
        "Armenian letters: not enrolled, should be unknown",
    )
    for part, title, (_, group) in zip(left.subfigures(2, 1), titles, groups, strict=True):
        part.suptitle(title, fontsize=11)
        axes = part.subplots(ROWS, COLUMNS, squeeze=False).flatten()
        indices = np.linspace(0, len(group) - 1, min(len(axes), len(group))).round().astype(int)
        for ax in axes:
            ax.axis("off")
        for ax, index in zip(axes, indices, strict=False):
            answer, color = describe_answer(group[index])
            ax.imshow(np.array(image.open(group[index].file)), cmap="gray", vmin=0, vmax=255)
            ax.set_title(answer, fontsize=9, color=color, y=-0.3)
    ax = right.subplots()
    scores = [[probe.match.score for probe in group] for _, group in groups]
    bins = np.linspace(min(map(min, scores)), 1, 40).tolist()
    for i, (values, label) in enumerate(zip(scores, ("enrolled letters", "strangers"), strict=True)):
        ax.hist(values, bins, weights=[1 / len(values)] * len(values), alpha=0.6, label=label, color=plots.color(i))
    ax.axvline(threshold, color="black", linestyle=":", label=f"threshold {threshold:.2f}")
    ax.set(xlabel="cosine with the nearest enrolled letter", ylabel="share of the pictures")
    ax.legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=90)
    return path


def describe_answer(probe: Probe) -> tuple[str, str]:
    """Return the gallery's answer for a probe and a color: green if right, red if wrong, gray if rejected.

    >>> from hypersphere.recognition import Match
    >>> path = pathlib.Path("new/armenian-small-ben/00.png")
    >>> describe_answer(Probe(path, "armenian-small-ben", Match("georgian-an", 0.4, False, None)))
    ('unknown', 'tab:green')
    >>> describe_answer(Probe(path, "georgian-ban", Match("georgian-an", 0.9, True, None)))
    ('an', 'tab:red')
    """
    stranger = probe.letter.startswith(STRANGERS)
    if not probe.match.accepted:
        return "unknown", RIGHT if stranger else REJECTED
    name = probe.match.identity
    return name.removeprefix(f"{ENROLLED}-"), RIGHT if name == probe.letter else WRONG
