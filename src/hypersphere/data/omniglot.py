"""Omniglot: 1,623 characters, each drawn by 20 people; training characters and unseen ones to test on."""

import re

import numpy as np
import torch
from jaxtyping import UInt8

from .archived_pictures import read_archived_pictures
from .images import crop_and_resize, to_array
from .in_memory import InMemory
from .roots import Root, find_folder
from .streams import SPLIT, Stream


class Omniglot(InMemory):
    """The ``background`` set (964 characters of 30 alphabets) or the evaluation set (659 of 20), uint8 (n, 1, 105, 105), ink 0 on 255.

    Classes are characters, named ``Alphabet/characterNN``; ``size`` resizes (28 is usual). The two sets share no character. Read from
    ``omniglot/`` below a data root: ``omniglot_png.tar.xz``, the authors' ``images_{background,evaluation}.zip``, or either unpacked.

    To choose settings without using the evaluation set, set ``held_out``: that many alphabets of the background set, always the same
    ones, are removed from it and replace the evaluation set.

    >>> drawings = Omniglot(background=False, size=28)  # doctest: +SKIP
    >>> drawings.data.shape, len(drawings.classes), drawings.classes[0]  # doctest: +SKIP
    (torch.Size([13180, 1, 28, 28]), 659, 'Angelic/character01')
    """

    def __init__(self, root: Root = None, background: bool = True, size: int | None = None, held_out: int = 0):
        folder = find_folder("omniglot", root)
        part = "background" if background or held_out else "evaluation"
        source = folder.file(f"images_{part}.zip", f"images_{part}/", "omniglot_png.tar.xz")
        inside = source.name == f"images_{part}"
        wanted = re.compile(("^" if inside else f"(?:^|/)images_{part}/") + r"([^/]+/[^/]+)/[^/]+\.png$")

        def prepare(name: str, content: bytes) -> UInt8[np.ndarray, "c h w"]:
            return to_array(crop_and_resize(folder.decode(content, f"{source}: {name}", "L", (105, 105)), size=size))

        layout = f"images_{part}/<alphabet>/<character>/<drawing>.png"
        names, data, _ = read_archived_pictures(folder, source, wanted, prepare, ["Omniglot", size], layout)
        owners = [str(wanted.search(name)[1]) for name in names]  # type: ignore[index]
        if held_out:
            kept = _select_alphabets({_get_alphabet(owner) for owner in owners}, held_out, background)
            chosen = [i for i, owner in enumerate(owners) if _get_alphabet(owner) in kept]
            data, owners = data[chosen], [owners[i] for i in chosen]
        classes = sorted(set(owners))
        number = {owner: i for i, owner in enumerate(classes)}
        super().__init__(data, torch.tensor([number[owner] for owner in owners]), classes)

    @property
    def alphabets(self) -> torch.Tensor:
        """Return the alphabet of each image, numbered in sorted order, for episodes or splits within or across alphabets."""
        names = [_get_alphabet(name) for name in self.classes]
        number = {name: i for i, name in enumerate(sorted(set(names)))}
        return torch.tensor([number[name] for name in names])[self.labels]


def _get_alphabet(name: str) -> str:
    return name.partition("/")[0]


def _select_alphabets(names: set[str], held_out: int, background: bool) -> set[str]:
    """Return the alphabets that are held out, which are fixed, or the others."""
    if not 0 < held_out < len(names):
        raise ValueError(f"held_out must lie in 0 … {len(names) - 1}, the alphabets but one, got {held_out}")
    order = Stream(0, SPLIT).permutation(len(names)).tolist()
    ordered = sorted(names)
    return {ordered[i] for i in (order[held_out:] if background else order[:held_out])}
