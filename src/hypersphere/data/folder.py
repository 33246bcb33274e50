"""Images in one folder per class, decoded when asked for: for sets that do not fit into memory."""

import os
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset

from .archive import inside, names_in
from .errors import MissingDataError
from .images import decode, fit, to_array
from .in_memory import InMemory

ENDINGS = (".png", ".jpg", ".jpeg")


class ImageFolder(Dataset[tuple[Tensor, int]]):
    """``root/<class>/…/<image>.{png,jpg,jpeg}``: the classes are the sorted folder names, the images in sorted order within each.

    ``dataset[i]`` decodes one image to uint8 (channels, ``size``, ``size``): the largest central square, resized; ``size=None`` leaves
    images as they are. ``gray`` gives one channel. Nothing outside ``root`` is read, not even through a link.
    :meth:`in_memory` decodes all at once, for sets that fit.
    """

    def __init__(self, root: str | os.PathLike[str], size: int | None = None, gray: bool = False):
        self.root, self.size, self.gray = Path(root), size, gray
        if not self.root.is_dir():
            raise MissingDataError(
                f"{self.root} is not there; expected a folder that holds one folder of images per class"
            )
        names = [name for name in names_in(self.root) if "/" in name and name.lower().endswith(ENDINGS)]
        if not names:
            raise MissingDataError(f"{self.root} holds no <class>/…/*{{{','.join(ENDINGS)}}}")
        self.classes = tuple(sorted({name.partition("/")[0] for name in names}))
        number = {name: i for i, name in enumerate(self.classes)}
        self.names = tuple(names)
        self.labels = torch.tensor([number[name.partition("/")[0]] for name in names])

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path = inside(self.root / self.names[index], self.root)
        image = decode(path.read_bytes(), str(path), "L" if self.gray else "RGB")
        if self.size is not None:
            image = fit(image, min(image.size), self.size)
        return torch.from_numpy(to_array(image)), int(self.labels[index])

    def in_memory(self) -> InMemory:
        """Everything decoded into one tensor; the images must be of one size."""
        return InMemory(torch.stack([self[i][0] for i in range(len(self))]), self.labels, self.classes)
