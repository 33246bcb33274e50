"""A folder of pictures as a dataset for training: your own pictures, ImageNet, or a face dataset."""

import os
from pathlib import Path

from jaxtyping import Int, Shaped
from torch import Tensor

from .errors import MissingDataError
from .preprocessing import PicturePreprocessing
from .roots import Root, data_roots
from .sources import SourceDataset, open_source

TEST_FOLDERS = ("test", "val", "valid", "validation")


class PictureFolder(SourceDataset):
    """Pictures in one sub-folder per class, decoded on demand, as uint8 (c, h, w).

    If the folder contains ``train`` and one of ``test``, ``val``, ``valid`` and ``validation``, these are the training part and
    the test part, which must have the same classes. Otherwise all pictures are the training part, and there is no test part:
    use ``samples.validation`` to hold out a validation set.

    Args:
        folder: The folder, or a file that :func:`open_source` accepts, such as a table or a tar shard. A relative path
            is searched in the working directory and then below the data roots.
        train: Whether to read the training part.
        size: Height and width of a picture, or one number for both.
        channels: 1 for gray, 3 for color.
        resize: "stretch" changes the aspect ratio, "cover" keeps it and cuts off the excess, "contain" keeps it and adds
            borders.
        center: Side of the center crop of test pictures, as for ImageNet; None keeps the whole picture.
        root: One or several data roots.

    Raises:
        MissingDataError: If there is no such folder, or ``train`` is False and there is no test part.
        ValueError: If the two parts have different classes.

    >>> PictureFolder("people/", size=(112, 96))[0][0].shape  # doctest: +SKIP
    torch.Size([3, 112, 96])
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        train: bool = True,
        *,
        size: int | tuple[int, ...] = 224,
        channels: int = 3,
        resize: str = "stretch",
        center: int | None = None,
        root: Root = None,
    ):
        height, width = (size, size) if isinstance(size, int) else (size[0], size[-1])
        if center is not None and not 1 <= center <= min(height, width):
            raise ValueError(f"center must lie in 1 … {min(height, width)} or be None, got {center!r}")
        top_folder = _find_folder(folder, root)
        part = _find_part(top_folder, train)
        self.center = None if train else center
        preprocessing = PicturePreprocessing(
            size=(height, width),
            channels=channels,
            mean=0.0,
            std=1.0,
            resize=resize,  # type: ignore[arg-type]
        )
        super().__init__(open_source(part, identities=1), preprocessing)
        classes = self.classes if train else open_source(top_folder / "train", identities=1).classes
        if tuple(self.classes) != tuple(classes):
            raise ValueError(
                f"{part} must hold the classes of {top_folder / 'train'}, got {len(self.classes)} and {len(classes)}"
            )

    def __getitem__(self, index: int) -> tuple[Shaped[Tensor, "..."], int]:
        pixels, label = super().__getitem__(index)
        return self._crop(pixels), label

    def batch(self, index: Int[Tensor, "b"]) -> tuple[Shaped[Tensor, "b ..."], Int[Tensor, "b"]]:
        """Return the samples at ``index`` and their class numbers."""
        pixels, labels = super().batch(index)
        return self._crop(pixels), labels

    def _crop(self, pixels: Tensor) -> Tensor:
        if self.center is None:
            return pixels
        top, left = ((side - self.center) // 2 for side in pixels.shape[-2:])
        return pixels[..., top : top + self.center, left : left + self.center]


def _find_folder(folder: str | os.PathLike[str], root: Root) -> Path:
    candidates = [Path(folder), *(top / folder for top in data_roots(root))]
    for path in candidates:
        if path.exists():
            return path
    raise MissingDataError(
        f"there is no folder {folder}: searched {', '.join(map(str, candidates))}. Put pictures there, one sub-folder per "
        "class, or name another folder with data.folder=…"
    )


def _find_part(folder: Path, train: bool) -> Path:
    tests = [folder / name for name in TEST_FOLDERS if (folder / name).is_dir()]
    if (folder / "train").is_dir() and tests:
        return folder / "train" if train else tests[0]
    if not train:
        raise MissingDataError(
            f"{folder} has no test part: put pictures into {folder / 'train'} and {folder / 'test'}, or hold samples out with "
            "samples.validation=0.1"
        )
    return folder
