"""From image files to a file of features."""

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import safetensors.torch
import torch
from jaxtyping import Float
from torch import Tensor

from .._extras import require
from .model_file import EmbeddingModel, Preprocessing, read_safetensors

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"}


class Features(NamedTuple):
    """Features of image files, in the order of ``files``, and the fingerprint of the model that made them."""

    features: Float[Tensor, "n d"]
    files: list[str]
    fingerprint: str


def image_files(paths: Iterable[str | Path]) -> list[Path]:
    """The images among files and folders, folders with everything below them, in the order given, each folder sorted."""
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
            if not inside:
                raise ValueError(f"there is no image in the folder {path}")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise ValueError(f"there is no file or folder {path}")
    return found


def read_image(path: str | Path, preprocessing: Preprocessing) -> Float[Tensor, "c h w"]:
    """One image in [0, 1], as grey or RGB, rotated as its camera says, resized to the model's size (needs pillow)."""
    image_module, operations = require("PIL.Image"), require("PIL.ImageOps")
    try:
        with image_module.open(path) as file:
            image = operations.exif_transpose(file).convert("L" if preprocessing.channels == 1 else "RGB")
    except (OSError, SyntaxError, image_module.DecompressionBombError) as error:
        raise ValueError(f"{path} cannot be read as an image: {error}") from error
    height, width = preprocessing.size
    pixels = np.array(image.resize((width, height), image_module.Resampling.BILINEAR), dtype=np.float32) / 255
    return torch.from_numpy(pixels.reshape(height, width, preprocessing.channels)).movedim(-1, 0)


def embed(model: EmbeddingModel, paths: Iterable[str | Path], batch: int = 64) -> Features:
    """Features of every image among ``paths``, ``batch`` images at a time."""
    if batch < 1:
        raise ValueError(f"batch must be an integer ≥ 1, got {batch!r}")
    files = image_files(paths)
    if not files:
        raise ValueError("paths must name at least one image, got none")
    device = next(iter(model.network.parameters()), torch.empty(0)).device
    parts = [
        model(torch.stack([read_image(f, model.preprocessing) for f in part]).to(device)).float().cpu()
        for part in _parts(files, batch)
    ]
    return Features(torch.cat(parts), [str(f) for f in files], model.fingerprint)


def save_features(features: Features, path: str | Path) -> None:
    """Write ``features`` ``(n, d)`` to a safetensors file with its files and fingerprint; the file appears whole or not at all."""
    target = Path(path)
    metadata = {
        "format": "hypersphere-features/1",
        "files": json.dumps(features.files),
        "fingerprint": features.fingerprint,
    }
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".features-") as folder:
        part = Path(folder) / target.name
        safetensors.torch.save_file({"features": features.features.contiguous()}, part, metadata)
        os.replace(part, target)


def load_features(path: str | Path) -> Features:
    """Read what :func:`save_features` wrote."""
    metadata, tensors = read_safetensors(path)
    if metadata.get("format") != "hypersphere-features/1":
        raise ValueError(f"{path} is not a file of features, got format {metadata.get('format')!r}")
    return Features(tensors["features"], json.loads(metadata["files"]), metadata["fingerprint"])


def _parts(files: Sequence[Path], batch: int) -> Iterator[Sequence[Path]]:
    return (files[start : start + batch] for start in range(0, len(files), batch))
