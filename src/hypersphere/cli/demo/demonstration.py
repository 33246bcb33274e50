"""The demonstration from start to end: what it trains, asks and measures, and the pages that it leaves."""

import os
import pathlib
from collections.abc import Callable
from dataclasses import dataclass

import torch

from ...report import write_page
from ...training import Run
from .demo_page import write_demo_page
from .digit_gallery import DigitAnswers, ask_gallery, fit_digits, write_folder
from .four_heads import HeadResult, train_heads

PAGE, HEADS_PAGE = "report.html", "heads.html"


@dataclass(frozen=True)
class Demonstration:
    """What a demonstration leaves.

    Attributes:
        folder: Where everything lies.
        run: The fit of the digits 0 to 6; its report is about 7, 8 and 9.
        answers: What the gallery said to new pictures, a row a digit.
        threshold: The least cosine that the gallery accepts.
        heads: Four heads on all ten digits.
        page: The report page.
        heads_page: The page of the four heads side by side.

    >>> shown = demonstrate("runs/demo")  # half a minute  # doctest: +SKIP
    >>> shown.page.name  # doctest: +SKIP
    'report.html'
    """

    folder: pathlib.Path
    run: Run
    answers: list[DigitAnswers]
    threshold: float
    heads: list[HeadResult]
    page: pathlib.Path
    heads_page: pathlib.Path


def demonstrate(
    output: str | os.PathLike[str] = "runs/demo",
    *,
    epochs: int = 20,
    steps: int | None = None,
    seed: int = 0,
    say: Callable[[str], None] | None = None,
    progress: Callable[[str, int], None] | None = None,
    fitted: Callable[[Run], None] | None = None,
    asked: Callable[[list[DigitAnswers], float], None] | None = None,
) -> Demonstration:
    """Show the main road on the digits that come with scikit-learn, and write it to a folder.

    Seven digits are learned and three held out as strangers; a gallery of the seven is asked about new pictures of all ten;
    four heads are trained side by side; two pages show all of it. It takes half a minute on one core.

    Args:
        output: The folder, made if there is none; what an earlier demonstration left in it is written over.
        epochs: Passes over the training digits for each of the four heads.
        steps: Steps of the fit; None is the demonstration's own choice.
        seed: Of everything that is drawn.
        say: Called with each line that the fit says.
        progress: Called with a head's name and how many epochs it has trained.
        fitted: Called with the run as soon as it is there.
        asked: Called with the gallery's answers and its threshold as soon as they are there.

    Raises:
        ValueError: if ``epochs`` is less than 1.

    >>> from hypersphere.cli.demo.demonstration import demonstrate
    >>> demonstrate("runs/demo", epochs=0)
    Traceback (most recent call last):
    ...
    ValueError: epochs must be an integer ≥ 1, got 0
    """
    if epochs < 1:
        raise ValueError(f"epochs must be an integer ≥ 1, got {epochs}")
    torch.set_num_threads(1)  # on small tensors two threads spin, and are several times slower where cores are busy
    folder = pathlib.Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    write_folder(folder)
    run = fit_digits(folder, seed, steps, say)
    if fitted is not None:
        fitted(run)
    answers, probes, threshold = ask_gallery(folder, run.embedder)
    if asked is not None:
        asked(answers, threshold)
    heads = train_heads(folder / "heads", epochs=epochs, seed=seed, progress=progress)
    heads_page = write_page([head.folder for head in heads], folder / HEADS_PAGE)
    page = write_demo_page(folder / PAGE, run, answers, probes, threshold, heads)
    return Demonstration(folder, run, answers, threshold, heads, page, heads_page)
