"""Samples of photographs for an album: detection and thumbnails."""

import math
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from .._extras import require
from ..data.errors import DataError
from ..data.preprocessing import Prepared, eight_bit_pixels
from ..data.sources import Source
from .embedder import Embedder

THUMBNAIL_SIDE = 128  # pixels of the longer side
THUMBNAIL_MARGIN = 0.35  # around a face, relative to the longer side of its box


class DetectedSample(NamedTuple):
    """A sample in a photograph: the network's input, its box and its thumbnail (a PIL image or None)."""

    windows: Tensor
    box: Any
    thumbnail: Any


def detect_samples(source: Source, index: int, embedder: Embedder) -> list[DetectedSample] | str:
    """Return the samples of a photograph, or the reason why it cannot be used."""
    try:
        sample, box = source.sample(index), source.records[index].box
        prepared = embedder.preprocessing.load_all(sample, box)
        shape = embedder.preprocessing.shape
        return [
            DetectedSample(one.windows(shape), one.info.get("box", box), _draw_thumbnail(sample, one, box))
            for one in prepared
        ]
    except (DataError, ValueError, OSError) as error:
        return str(error)


def absolute_path(name: str) -> str:
    """Return the absolute path of a file. A name that is not a file, such as an archive entry, is returned unchanged."""
    return str(Path(name).absolute()) if os.path.exists(name) else name


def read_file_state(path: str) -> str:
    """Return size and modification time of a file, which reveal a changed photograph; empty if there is no file."""
    try:
        status = os.stat(path)
    except OSError:
        return ""
    return f"{status.st_size} {status.st_mtime_ns}"


def _draw_thumbnail(sample: Any, prepared: Prepared, box: Any) -> Any:
    """Return a small picture of a sample, with a margin around a face; None for a recording."""
    try:
        pixels = eight_bit_pixels(sample, None)
    except (ValueError, TypeError, AttributeError):  # not a picture
        return None
    height, width = pixels.shape[-2:]
    face = prepared.info.get("box")
    left, top, right, bottom = face or box or (0, 0, width, height)
    if face:
        half = max(right - left, bottom - top) * (0.5 + THUMBNAIL_MARGIN)
        x, y = (left + right) / 2, (top + bottom) / 2
        left, top, right, bottom = x - half, y - half, x + half, y + half
    left, top = max(0, math.floor(left)), max(0, math.floor(top))
    right, bottom = min(width, max(left + 1, math.ceil(right))), min(height, max(top + 1, math.ceil(bottom)))
    part = pixels[..., top:bottom, left:right]
    array = part[:3].permute(1, 2, 0).numpy() if part.shape[0] >= 3 else part[0].numpy()
    image = require("PIL.Image").fromarray(np.ascontiguousarray(array))
    image.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    return image
