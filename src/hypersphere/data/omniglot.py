"""Omniglot: 1,623 characters, each drawn by 20 people, and the 20 published one-shot runs."""

import re
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from .archived_pictures import read_archived_pictures
from .images import crop_and_resize, to_array
from .in_memory import InMemory
from .roots import Folder, Root, find_folder
from .streams import SPLIT, Stream

WAYS = 20  # characters per published run
_RUN_FILE = re.compile(r"(run\d\d)/(?:class_labels\.txt|(?:test/item|training/class)\d\d\.png)$")


class Omniglot(InMemory):
    """The ``background`` set (964 characters of 30 alphabets) or the evaluation set (659 of 20), uint8 (n, 1, 105, 105), ink 0 on 255.

    Classes are characters, named ``Alphabet/characterNN``; ``size`` resizes (28 is usual). The two sets share no character. Read from
    ``omniglot/`` below a data root: ``omniglot_png.tar.xz``, the authors' ``images_{background,evaluation}.zip``, or either unpacked.

    To choose settings without the evaluation set, set ``held_out`` to a number of alphabets. That many alphabets of the background set,
    always the same ones, are removed from it and replace the evaluation set.

    >>> drawings = Omniglot(background=False, size=28)  # doctest: +SKIP
    >>> drawings.data.shape, len(drawings.classes), drawings.classes[0]  # doctest: +SKIP
    (torch.Size([13180, 1, 28, 28]), 659, 'Angelic/character01')
    """

    def __init__(self, root: Root = None, background: bool = True, size: int | None = None, held_out: int = 0):
        folder = find_folder("omniglot", root)
        part = "background" if background or held_out else "evaluation"
        source = folder.get_file(f"images_{part}.zip", f"images_{part}/", "omniglot_png.tar.xz")
        prefix = "^" if source.name == f"images_{part}" else f"(?:^|/)images_{part}/"
        pattern = re.compile(prefix + r"([^/]+/[^/]+)/[^/]+\.png$")

        def prepare(name: str, content: bytes) -> UInt8[np.ndarray, "1 h w"]:
            return _read_drawing(folder, f"{source}: {name}", content, size)

        layout = f"images_{part}/<alphabet>/<character>/<drawing>.png"
        names, data, _ = read_archived_pictures(folder, source, pattern, prepare, ["Omniglot", size], layout)
        characters = [str(pattern.search(name)[1]) for name in names]  # type: ignore[index]
        if held_out:
            alphabets = _select_alphabets({_get_alphabet(name) for name in characters}, held_out, background)
            kept = [i for i, name in enumerate(characters) if _get_alphabet(name) in alphabets]
            data, characters = data[kept], [characters[i] for i in kept]
        classes, labels = np.unique(characters, return_inverse=True)
        super().__init__(data, torch.from_numpy(labels), classes.tolist())

    @property
    def alphabets(self) -> Int[Tensor, "n"]:
        """The alphabet of each image, numbered in sorted order, for episodes or splits within or across alphabets."""
        numbers = np.unique([_get_alphabet(name) for name in self.classes], return_inverse=True)[1]
        return torch.from_numpy(numbers)[self.labels]


class OneShotRun(NamedTuple):
    """One published run: 20 characters of one alphabet. Query i shows the character of ``support[answers[i]]``, drawn by another person.

    >>> support = torch.eye(9, dtype=torch.uint8).reshape(9, 1, 3, 3)
    >>> run = OneShotRun(support, query=support.flip(0), answers=torch.arange(9).flip(0))
    >>> guesses = torch.cdist(run.query.flatten(1).float(), run.support.flatten(1).float()).argmin(1)
    >>> (guesses == run.answers).double().mean().item()
    1.0
    """

    support: UInt8[Tensor, "ways 1 h w"]
    query: UInt8[Tensor, "queries 1 h w"]
    answers: Int[Tensor, "queries"]


def one_shot_runs(root: Root = None, size: int | None = None) -> tuple[OneShotRun, ...]:
    """Return the 20 runs of ``one_shot_all_runs.zip`` (the authors call it ``all_runs.zip``) in ``omniglot/`` below a data root.

    Each has 20 support and 20 query images of characters of the evaluation set, uint8 (20, 1, 105, 105), ink 0 on 255. ``size`` resizes
    as in :class:`Omniglot`. Support images are in the order of their file names, queries in the order of the list of answers.

    >>> runs = one_shot_runs(size=28)  # doctest: +SKIP
    >>> len(runs), runs[0].support.shape, runs[0].query.shape  # doctest: +SKIP
    (20, torch.Size([20, 1, 28, 28]), torch.Size([20, 1, 28, 28]))
    """
    folder = find_folder("omniglot", root)
    source = folder.get_file("one_shot_all_runs.zip", "all_runs.zip")
    files = dict(folder.walk(source, lambda name: _RUN_FILE.match(name) is not None))
    names = sorted({name.split("/")[0] for name in files})
    if not names:
        raise folder.make_corrupt_error(source, "no run", "run<number>/class_labels.txt and its images")

    def read_images(names: list[str]) -> UInt8[Tensor, "n 1 h w"]:
        drawings = [_read_drawing(folder, f"{source}: {name}", files[name], size) for name in names]
        return torch.from_numpy(np.stack(drawings))

    runs = []
    for run in names:
        answers = _read_answers(folder, f"{source}: {run}/class_labels.txt", files.get(f"{run}/class_labels.txt", b""))
        support = sorted(name for name in files if name.startswith(f"{run}/training/"))
        queries = [query for query, _ in answers]
        if len(support) != WAYS or set(queries) != {name for name in files if name.startswith(f"{run}/test/")}:
            found = f"{len(support)} classes and answers to other queries"
            raise folder.make_corrupt_error(f"{source}: {run}", found, f"{WAYS} of each")
        if not {answer for _, answer in answers} <= set(support):
            found = "an answer that is no class of the run"
            raise folder.make_corrupt_error(f"{source}: {run}", found, "the name of a training image")
        numbers = torch.tensor([support.index(answer) for _, answer in answers])
        runs.append(OneShotRun(read_images(support), read_images(queries), numbers))
    return tuple(runs)


def _read_drawing(folder: Folder, where: str, content: bytes, size: int | None) -> UInt8[np.ndarray, "1 h w"]:
    return to_array(crop_and_resize(folder.decode(content, where, "L", (105, 105)), size=size))


def _get_alphabet(character: str) -> str:
    return character.partition("/")[0]


def _select_alphabets(names: set[str], held_out: int, background: bool) -> set[str]:
    """Return the alphabets that are held out, which are always the same, or the others (``background``)."""
    if not 0 < held_out < len(names):
        raise ValueError(f"held_out must lie in 0 … {len(names) - 1}, the alphabets but one, got {held_out}")
    order = Stream(0, SPLIT).permutation(len(names)).tolist()
    ordered = sorted(names)
    return {ordered[i] for i in (order[held_out:] if background else order[:held_out])}


def _read_answers(folder: Folder, where: str, content: bytes) -> list[tuple[str, str]]:
    """Read lines ``<query> <class>``, one per query."""
    lines = [line.split() for line in content.decode("utf-8", "replace").splitlines() if line.strip()]
    if len(lines) != WAYS or any(len(line) != 2 for line in lines) or len({line[0] for line in lines}) != WAYS:
        raise folder.make_corrupt_error(where, f"{len(lines)} lines", f"{WAYS} different queries, each with its class")
    return [(query, answer) for query, answer in lines]
