"""The main road on the embedded digits: a folder of pictures, a recogniser, and a gallery that names and rejects."""

import pathlib
from collections.abc import Callable
from typing import NamedTuple

from ..._extras import require
from ...data import Digits
from ...recognition import Embedder, Gallery, Match
from ...training import Run, fit

KNOWN, STRANGERS = "0123456", "789"
SHOWN_BEFORE = "78"  # strangers that set the threshold; the third is new to everything
TEMPLATES = 20  # pictures with which a digit is enrolled
FPIR = 0.05
# A shallow network and few steps: of a few settings tried with 2, 3, 4 and with 7, 8, 9 as strangers, the one that named most in both.
FIT = ("backbone=cnn3", "backbone.widths=32,64,64", "steps=150", "threads=1")


class DigitAnswers(NamedTuple):
    """What the gallery said to new pictures of one digit; ``role`` says what the digit is to it.

    >>> from hypersphere.cli.demo.digit_gallery import DigitAnswers
    >>> seven = DigitAnswers("7", role="stranger", pictures=40, right=0, wrong=2, unknown=38)
    >>> f"{seven.unknown / seven.pictures:.0%} of the pictures of a stranger were rejected"
    '95% of the pictures of a stranger were rejected'
    """

    digit: str
    role: str
    pictures: int
    right: int
    wrong: int
    unknown: int


class Probe(NamedTuple):
    """A new picture, by its place among the test digits, and the gallery's nearest identity to it."""

    place: int
    digit: str
    match: Match


def write_folder(folder: pathlib.Path) -> None:
    """Write the digits as PNG files: ``pictures/train/0 … 6``, ``pictures/test/7 … 9`` and new ones in ``new/0 … 9``."""
    image = require("PIL.Image")
    for train, where in ((True, "pictures"), (False, "new")):
        digits = Digits(train=train)
        counts = dict.fromkeys(digits.classes, 0)
        for picture, label in zip(digits.data[:, 0].numpy(), digits.labels.tolist(), strict=True):
            name = digits.classes[label]
            side = ("test" if name in STRANGERS else "train",) if train else ()
            counts[name] += 1
            path = folder.joinpath(where, *side, name, f"{counts[name]:03}.png")
            path.parent.mkdir(parents=True, exist_ok=True)
            image.fromarray(picture).save(path)


def fit_digits(folder: pathlib.Path, seed: int, steps: int | None, say: Callable[[str], None] | None) -> Run:
    """Fit the written folder; ``test`` holds digits that ``train`` has not, so these are never trained on."""
    wanted = [*FIT, f"seed={seed}", *([] if steps is None else [f"steps={steps}"])]
    return fit(folder / "pictures", folder / "fit", overrides=wanted, fresh=True, say=say)


def ask_gallery(folder: pathlib.Path, embedder: Embedder) -> tuple[list[DigitAnswers], list[Probe], float]:
    """Enrol the known digits, calibrate on strangers, and ask about every new picture.

    Returns:
        The answers by digit, each probe with its nearest identity, and the calibrated threshold.
    """
    for old in folder.glob("known.db*"):  # of an earlier demonstration, whose network may have been another
        old.unlink()
    seen = {name: _files(folder / "pictures" / "train" / name) for name in KNOWN}
    strangers = [file for name in SHOWN_BEFORE for file in _files(folder / "pictures" / "test" / name)]
    test = Digits(train=False)
    with Gallery(folder / "known.db", embedder) as gallery:
        for name, files in seen.items():
            gallery.enrol(name, embedder(files[:TEMPLATES]), [str(file) for file in files[:TEMPLATES]])
        # Every picture counts as a person here. Two digits are too few to promise a rate for new digits, as the answers
        # about the third stranger show.
        features = embedder(strangers)
        threshold = gallery.calibrate(fpir=FPIR, strangers=features, people=range(len(features))).threshold
        nearest = [answer.best for answer in gallery.identify(embedder(list(test.data[:, 0].numpy())))]
    names = [test.classes[label] for label in test.labels.tolist()]
    probes = [Probe(place, name, match) for place, (name, match) in enumerate(zip(names, nearest, strict=True))]
    return [_counted(name, probes) for name in test.classes], probes, threshold


def _files(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(folder.iterdir())


def _counted(name: str, probes: list[Probe]) -> DigitAnswers:
    mine = [probe.match for probe in probes if probe.digit == name]
    right = sum(match.accepted and match.identity == name for match in mine)
    taken = sum(match.accepted for match in mine)
    role = "enrolled" if name in KNOWN else "stranger" if name in SHOWN_BEFORE else "new stranger"
    return DigitAnswers(name, role, len(mine), right, taken - right, len(mine) - taken)
