"""Omniglot: 1,623 characters, each drawn by 20 people; training characters and unseen ones to test on."""

import re

import numpy as np
import torch

from .images import fit, to_array
from .in_memory import InMemory
from .roots import Root, find

_IMAGE = re.compile(r"(?:^|/)images_(background|evaluation)/([^/]+/[^/]+)/[^/]+\.png$")


class Omniglot(InMemory):
    """The ``background`` set (964 characters of 30 alphabets) or the evaluation set (659 of 20), uint8 (n, 1, 105, 105), ink 0 on 255.

    A class is a character, named ``Alphabet/characterNN``; ``size`` resizes (28 is usual). The two sets share no character. Read from
    ``omniglot/`` below a data root: ``omniglot_png.tar.xz``, the authors' ``images_{background,evaluation}.zip``, or either unpacked.
    """

    def __init__(self, root: Root = None, background: bool = True, size: int | None = None):
        folder = find("omniglot", root)
        part = "background" if background else "evaluation"
        source = folder.file(f"images_{part}.zip", f"images_{part}/", "omniglot_png.tar.xz")
        inner = source.name == f"images_{part}"

        def address(name: str) -> str | None:
            found = _IMAGE.search(f"images_{part}/{name}" if inner else name)
            return found[2] if found and found[1] == part else None

        images = {
            name: to_array(fit(folder.decode(content, f"{source}: {name}", "L", (105, 105)), size=size))
            for name, content in folder.walk(source, lambda name: address(name) is not None)
        }
        if not images:
            raise folder.corrupt(source, "no character", f"images_{part}/<alphabet>/<character>/<drawing>.png")
        names = sorted(images)
        owners = [str(address(name)) for name in names]
        classes = sorted(set(owners))
        number = {owner: i for i, owner in enumerate(classes)}
        data = torch.from_numpy(np.stack([images[name] for name in names]))
        super().__init__(data, torch.tensor([number[owner] for owner in owners]), classes)

    @property
    def alphabets(self) -> torch.Tensor:
        """The alphabet of each image, numbered in sorted order: for episodes or splits within or across alphabets."""
        names = [name.partition("/")[0] for name in self.classes]
        number = {name: i for i, name in enumerate(sorted(set(names)))}
        return torch.tensor([number[name] for name in names])[self.labels]
