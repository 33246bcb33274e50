"""The demo from start to end: letters, gallery, four heads and two report pages."""

import os
import pathlib
from collections.abc import Callable
from dataclasses import dataclass

import torch

from ...recognition import Calibration
from ...report import write_page
from ...training import Run
from .demo_page import write_demo_page
from .four_heads import HeadResult, train_heads
from .letter_gallery import Answers, fit_letters, identify_letters, write_letters
from .letter_picture import draw_answers

PAGE, HEADS_PAGE, PICTURE = "report.html", "heads.html", "letters.png"


@dataclass(frozen=True)
class Demonstration:
    """The results of a demo.

    Attributes:
        folder: The output folder.
        run: The training run on Latin, Greek and Cyrillic letters, evaluated on Georgian and Armenian letters.
        answers: The numbers of right, wrong and rejected answers of the gallery, one entry per group of letters.
        calibration: The calibrated threshold of the gallery.
        heads: The results of four heads trained on handwritten digits.
        page: The report page.
        heads_page: The page that compares the four heads.

    >>> done = demonstrate("runs/demo")  # a minute  # doctest: +SKIP
    >>> done.page.name  # doctest: +SKIP
    'report.html'
    """

    folder: pathlib.Path
    run: Run
    answers: list[Answers]
    calibration: Calibration
    heads: list[HeadResult]
    page: pathlib.Path
    heads_page: pathlib.Path


def demonstrate(
    output: str | os.PathLike[str] = "runs/demo",
    *,
    epochs: int = 8,
    steps: int | None = None,
    seed: int = 0,
    say: Callable[[str], None] | None = None,
    progress: Callable[[str, int], None] | None = None,
    report_fit: Callable[[Run], None] | None = None,
    report_gallery: Callable[[list[Answers], Calibration], None] | None = None,
) -> Demonstration:
    """Train on letters of three scripts, recognize letters of two unseen scripts, and compare four heads.

    No download is needed: the letters are rendered from the fonts of matplotlib, and the digits are part of
    scikit-learn. PyTorch is set to one thread for the whole process.

    Args:
        output: The output folder, created if missing. Files of an earlier demo are replaced.
        epochs: Epochs of training on the digits, per head.
        steps: Training steps on the letters; None for 250.
        seed: The random seed of all parts.
        say: Called with each line that the training on letters prints.
        progress: Called with the name of a head and the number of its completed epochs.
        report_fit: Called with the run when the training on letters is complete.
        report_gallery: Called with the answers and the calibration of the gallery.

    Returns:
        The results.

    Raises:
        ValueError: If ``epochs`` is less than 1.

    >>> from hypersphere.cli.demo.demonstration import demonstrate
    >>> demonstrate("runs/demo", epochs=0)
    Traceback (most recent call last):
    ...
    ValueError: epochs must be an integer ≥ 1, got 0
    """
    if epochs < 1:
        raise ValueError(f"epochs must be an integer ≥ 1, got {epochs}")
    torch.set_num_threads(1)  # for tensors this small, more threads are slower, especially if the cores are busy
    folder = pathlib.Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    write_letters(folder)
    run = fit_letters(folder, seed, steps, say)
    if report_fit is not None:
        report_fit(run)
    answers, probes, calibration = identify_letters(folder, run.embedder)
    draw_answers(folder / PICTURE, probes, calibration.threshold)
    if report_gallery is not None:
        report_gallery(answers, calibration)
    heads = train_heads(folder / "heads", epochs=epochs, seed=seed, progress=progress)
    heads_page = write_page([head.folder for head in heads], folder / HEADS_PAGE)
    page = write_demo_page(folder / PAGE, run, answers, probes, calibration, heads)
    return Demonstration(folder, run, answers, calibration, heads, page, heads_page)
