"""Train on letters of three scripts, then identify or reject letters of two other scripts with a gallery."""

import pathlib
import shutil
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from ..._extras import require
from ...data import Letters
from ...files import write_atomically
from ...recognition import Calibration, Embedder, Gallery, Match
from ...training import Run, fit

TRAINED, ENROLLED, STRANGERS = ("latin", "greek", "cyrillic"), "georgian", "armenian"
TEMPLATES = 6  # enrolled typefaces per letter; the other typefaces are probes
FPIR = 0.1  # 46 letters determine the threshold: enough for this rate, but 0.05 would need 59
FIT = ("steps=250", "networks=1", "last_layer=none", "threads=1")


class Answers(NamedTuple):
    """The number of right, wrong and rejected answers for one group of letters.

    >>> from hypersphere.cli.demo.letter_gallery import Answers
    >>> new = Answers("Armenian, new strangers", letters=35, pictures=420, right=0, wrong=21, unknown=399)
    >>> f"{new.unknown / new.pictures:.0%} of the pictures of strangers were rejected"
    '95% of the pictures of strangers were rejected'
    """

    group: str
    letters: int
    pictures: int
    right: int
    wrong: int
    unknown: int


class Probe(NamedTuple):
    """An identified picture, the name of its letter, and the nearest enrolled letter."""

    file: pathlib.Path
    letter: str
    match: Match


def write_letters(folder: pathlib.Path) -> None:
    """Write the letters for training, enrollment, calibration and identification.

    ``letters.npz`` contains all pictures with a split: Latin, Greek and Cyrillic letters for training, Georgian and
    Armenian letters for testing. Letters that look the same in both splits are in the training split only. The folders
    ``known``, ``strangers`` and ``new`` contain one folder of PNG files per letter. ``known`` has the first typefaces
    of the Georgian letters, ``strangers`` two thirds of the Armenian letters, and ``new`` the remaining pictures.

    Args:
        folder: An existing folder. Earlier letters in it are replaced.
    """
    letters = Letters([*TRAINED, ENROLLED, STRANGERS])
    names = [_name_folder(name) for name in letters.classes]
    unseen = torch.tensor([name.startswith((ENROLLED, STRANGERS)) for name in names])
    split = np.where(unseen[letters.labels].numpy(), "test", "train")
    arrays = {"images": letters.data[:, 0].numpy(), "labels": np.array(names)[letters.labels.numpy()], "split": split}
    write_atomically(folder / "letters.npz", lambda file: np.savez(file, **arrays))
    for part in ("known", "strangers", "new"):
        shutil.rmtree(folder / part, ignore_errors=True)
    armenian = [name for name in names if name.startswith(STRANGERS)]
    calibrating = set(armenian) - set(armenian[::3])
    image = require("PIL.Image")
    for number in torch.nonzero(unseen).flatten().tolist():
        name = names[number]
        for i, picture in enumerate(letters.data[letters.labels == number, 0].numpy()):
            known = name.startswith(ENROLLED) and i < TEMPLATES
            path = folder / ("known" if known else "strangers" if name in calibrating else "new") / name
            path.mkdir(parents=True, exist_ok=True)
            image.fromarray(picture).save(path / f"{i:02}.png")


def fit_letters(folder: pathlib.Path, seed: int, steps: int | None, say: Callable[[str], None] | None) -> Run:
    """Train an embedder on the training split of ``letters.npz`` and measure it on the other split.

    Args:
        folder: The folder of :func:`write_letters`.
        seed: The seed of the fit.
        steps: The number of training steps; None for 250.
        say: Called with each line that the fit prints.

    Returns:
        The finished run.
    """
    overrides = [*FIT, f"seed={seed}", *([] if steps is None else [f"steps={steps}"])]
    return fit(folder / "letters.npz", folder / "fit", settings=overrides, fresh=True, quiet=say is None, say=say)


def identify_letters(folder: pathlib.Path, embedder: Embedder) -> tuple[list[Answers], list[Probe], Calibration]:
    """Enroll the known letters, calibrate with strangers, and identify every new picture.

    Args:
        folder: The folder of :func:`write_letters`.
        embedder: The trained embedder.

    Returns:
        The answers by group, each probe with its nearest letter, and the calibration.
    """
    for file in folder.glob("known.db*"):  # an earlier demo may have used another network
        file.unlink()
    new = sorted((folder / "new").glob("*/*.png"))
    with Gallery(folder / "known.db", embedder) as gallery:
        files = sorted((folder / "known").glob("*/*.png"))
        gallery.enrol([file.parent.name for file in files], embedder(files), [str(file) for file in files])
        calibration = gallery.calibrate(fpir=FPIR, strangers=str(folder / "strangers"))
        found = gallery.identify(embedder(new))
    probes = [Probe(file, file.parent.name, answer.best) for file, answer in zip(new, found, strict=True)]
    groups = ((f"{ENROLLED.title()}, enrolled", ENROLLED), (f"{STRANGERS.title()}, new strangers", STRANGERS))
    return (
        [_count_answers(name, [p for p in probes if p.letter.startswith(script)]) for name, script in groups],
        probes,
        calibration,
    )


def _count_answers(group: str, probes: Sequence[Probe]) -> Answers:
    accepted = [probe for probe in probes if probe.match.accepted]
    right = sum(probe.match.identity == probe.letter for probe in accepted)
    letters = len({probe.letter for probe in probes})
    return Answers(group, letters, len(probes), right, len(accepted) - right, len(probes) - len(accepted))


def _name_folder(name: str) -> str:
    return name.lower().replace(" letter ", " ").replace(" ", "-")
