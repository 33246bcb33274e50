"""Omniglot's published one-shot runs: 20 tasks, each with 20 characters of one alphabet."""

import re
from typing import NamedTuple

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from .images import crop_and_resize, to_array
from .roots import Folder, Root, find_folder

WAYS = 20
_FILE = re.compile(r"(run\d\d)/(?:class_labels\.txt|(?:test/item|training/class)\d\d\.png)$")


class OneShotRun(NamedTuple):
    """One run. Query i shows the character of ``support[answers[i]]``, drawn by another person.

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

    Each has 20 support and 20 query images, uint8 (20, 1, 105, 105), ink 0 on 255, of characters of the evaluation set; ``size``
    resizes as :class:`Omniglot` does. Support images are in the order of their file names, queries in that of the list of answers.

    >>> runs = one_shot_runs(size=28)  # doctest: +SKIP
    >>> len(runs), runs[0].support.shape, runs[0].query.shape  # doctest: +SKIP
    (20, torch.Size([20, 1, 28, 28]), torch.Size([20, 1, 28, 28]))
    """
    folder = find_folder("omniglot", root)
    source = folder.file("one_shot_all_runs.zip", "all_runs.zip")
    files = dict(folder.walk(source, lambda name: _FILE.match(name) is not None))
    runs = sorted({name.split("/")[0] for name in files})
    if not runs:
        raise folder.make_corrupt_error(source, "no run", "run<number>/class_labels.txt and its images")

    def images(names: list[str]) -> Tensor:
        decoded = (folder.decode(files[name], f"{source}: {name}", "L", (105, 105)) for name in names)
        return torch.stack([torch.from_numpy(to_array(crop_and_resize(image, size=size))) for image in decoded])

    read = []
    for run in runs:
        answers = _read_answers(folder, f"{source}: {run}/class_labels.txt", files.get(f"{run}/class_labels.txt", b""))
        support = sorted(name for name in files if name.startswith(f"{run}/training/"))
        queries = [query for query, _ in answers]
        if len(support) != WAYS or set(queries) != {name for name in files if name.startswith(f"{run}/test/")}:
            raise folder.make_corrupt_error(
                f"{source}: {run}", f"{len(support)} classes and answers to other queries", f"{WAYS} of each"
            )
        if not {answer for _, answer in answers} <= set(support):
            raise folder.make_corrupt_error(
                f"{source}: {run}", "an answer that is no class of the run", "the name of a training image"
            )
        read.append(
            OneShotRun(images(support), images(queries), torch.tensor([support.index(answer) for _, answer in answers]))
        )
    return tuple(read)


def _read_answers(folder: Folder, where: str, content: bytes) -> list[tuple[str, str]]:
    """Read lines ``<query> <class>``, one per query."""
    lines = [line.split() for line in content.decode("utf-8", "replace").splitlines() if line.strip()]
    if len(lines) != WAYS or any(len(line) != 2 for line in lines) or len({line[0] for line in lines}) != WAYS:
        raise folder.make_corrupt_error(where, f"{len(lines)} lines", f"{WAYS} different queries, each with its class")
    return [(query, answer) for query, answer in lines]
