"""Images as uint8 tensors: decoding without trust, and the in-memory dataset that most readers return."""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Int, Shaped, UInt8
from torch import Tensor
from torch.utils.data import Dataset

from .._extras import require
from .errors import corrupt

FORMATS = ("PNG", "JPEG")


class InMemory(Dataset[tuple[Tensor, int]]):
    """A whole dataset as one tensor, usually uint8 (n, channels, height, width), and int64 labels 0 … len(classes) − 1.

    ``dataset[i]`` is ``(data[i], label)``; ``dataset.batch(index)`` is many at once, which is what :class:`Loader` uses.

    >>> images = InMemory(torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 1, 0]), ("cat", "dog"))
    >>> len(images), images[1][1], images.batch(torch.tensor([0, 2]))[0].shape
    (4, 1, torch.Size([2, 1, 2, 2]))
    """

    def __init__(self, data: Shaped[Tensor, "n ..."], labels: Int[Tensor, "n"], classes: Sequence[str]):
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(classes):
            raise ValueError(
                f"labels must lie in 0 … {len(classes) - 1}, got {int(labels.min())} … {int(labels.max())}"
            )
        self.data = data
        self.labels = labels.long()
        self.classes = tuple(classes)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.data[index], int(self.labels[index])

    def batch(self, index: Int[Tensor, "b"]) -> tuple[Tensor, Int[Tensor, "b"]]:
        """The samples at ``index`` and their labels."""
        index = index.to(self.data.device)
        return self.data[index], self.labels[index]

    def to(self, device: torch.device | str) -> "InMemory":
        """The same dataset, kept on another device."""
        return InMemory(self.data.to(device), self.labels.to(device), self.classes)


def decode(content: bytes, where: str, mode: str = "RGB", shape: tuple[int, int] | None = None) -> Any:
    """The PIL image in ``content``, whole and converted to ``mode`` ("RGB" or "L").

    Only PNG and JPEG are tried. ``shape`` = (height, width) is checked before any pixel is decoded.
    """
    image_module = require("PIL.Image")
    expected = "a whole PNG or JPEG image" + (f" of {shape[0]}×{shape[1]}" if shape else "")
    try:
        image = image_module.open(io.BytesIO(content), formats=FORMATS)
        if shape is not None and image.size != shape[::-1]:
            raise ValueError(f"{image.height}×{image.width} pixels")
        image.load()
        return image.convert(mode)
    except Exception as error:  # a decoder may fail in any way on damaged bytes; the reason goes into the message
        raise corrupt(
            where, f"{len(content)} bytes that do not decode ({type(error).__name__}: {error})", expected
        ) from error


def to_array(image: Any) -> UInt8[np.ndarray, "c h w"]:
    """A PIL image as a (channels, height, width) array."""
    pixels = np.array(image)  # a copy: the image's own memory is not writable
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def fit(image: Any, crop: int | None = None, size: int | None = None) -> Any:
    """The central ``crop``×``crop`` of a PIL image, then resized to ``size``×``size`` (antialiased bilinear, integer arithmetic)."""
    if crop is not None:
        if not 1 <= crop <= min(image.size):
            raise ValueError(f"crop must lie in 1 … {min(image.size)}, got {crop}")
        left, top = (image.width - crop) // 2, (image.height - crop) // 2
        image = image.crop((left, top, left + crop, top + crop))
    if size is not None and image.size != (size, size):
        if size < 1:
            raise ValueError(f"size must be an integer ≥ 1, got {size}")
        image = image.resize((size, size), require("PIL.Image").Resampling.BILINEAR)
    return image
