"""From image files to a file of features."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import safetensors.torch
import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from ..data import CorruptDataError
from ..evaluation.gathering import gather_answers
from ..files import checksum, write_atomically
from .embedder import Embedder, read_file

FORMAT = "hypersphere-features/2"
SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"}

Embedded = tuple[list[Tensor], list[str], dict[str, str]]


class Features(NamedTuple):
    """Features of image files, in the order of ``files``, and the fingerprint of the embedder that made them.

    >>> import tempfile
    >>> embedder = Embedder(torch.nn.Flatten(), hs.data.Preprocessing(size=(4, 4), channels=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.pgm").write_bytes(b"P5 4 4 255 " + bytes(16)), Path(folder, "b.pgm").write_text("text")
    ...     found = embed(embedder, [folder], skip_errors=True)
    >>> found.features.shape, len(found.files), len(found.skipped)
    (torch.Size([1, 16]), 1, 1)
    """

    features: Float[Tensor, "n d"]
    files: list[str]
    fingerprint: str
    skipped: Mapping[str, str] = MappingProxyType({})
    """files that could not be read, with the reason"""


def image_files(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
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


def embed(
    embedder: Embedder,
    paths: Iterable[str | os.PathLike[str]],
    batch: int = 64,
    *,
    skip_errors: bool = False,
    group: dist.ProcessGroup | None = None,
) -> Features:
    """Features of every image among ``paths``, ``batch`` images at a time.

    Args:
        embedder: What makes the features; it is used on the device it is on.
        paths: Files, and folders with everything below them.
        batch: Images at a time.
        skip_errors: Leave out files that cannot be read, and list them in ``skipped``.
        group: Processes that divide the files among them, such as ``torch.distributed.group.WORLD``. All of them call it
            with the same paths, and each returns the whole. By default this process works alone.

    Raises:
        ValueError: For a file that cannot be read, unless ``skip_errors``, and if nothing is left; on every process.

    >>> import tempfile
    >>> embedder = Embedder(torch.nn.Flatten(), hs.data.Preprocessing(size=(4, 4), channels=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "grey.pgm").write_bytes(b"P5 4 4 255 " + bytes(16))
    ...     embed(embedder, [folder]).features.shape
    torch.Size([1, 16])
    """
    if batch < 1:
        raise ValueError(f"batch must be an integer ≥ 1, got {batch!r}")
    files = image_files(paths)
    if not files:
        raise ValueError("paths must name at least one image, got none")
    rank, count = (0, 1) if group is None else (dist.get_rank(group), dist.get_world_size(group))
    own = files[len(files) * rank // count : len(files) * (rank + 1) // count]

    def compute() -> Embedded:
        return _embedded(embedder, own, batch, skip_errors)

    found = [compute()] if group is None else gather_answers(compute, group)
    parts = [part for features, _, _ in found for part in features]
    skipped = {file: reason for _, _, left in found for file, reason in left.items()}
    if not parts:
        raise ValueError(f"none of {len(files)} images could be read; the first: {next(iter(skipped.values()))}")
    return Features(torch.cat(parts), [file for _, read, _ in found for file in read], embedder.fingerprint, skipped)


def _embedded(embedder: Embedder, files: list[Path], batch: int, skip_errors: bool) -> Embedded:
    """Features in batches, the files that were read, and those that were not, with the reason."""
    parts: list[Tensor] = []
    read: list[str] = []
    skipped: dict[str, str] = {}
    for start in range(0, len(files), batch):
        pixels = []
        for file in files[start : start + batch]:
            found = _pixels(embedder, file, skip_errors)
            if isinstance(found, str):
                skipped[str(file)] = found
            else:
                pixels.append(found)
                read.append(str(file))
        if pixels:
            parts.append(embedder(torch.stack(pixels), batch).float().cpu())
    return parts, read, skipped


def _pixels(embedder: Embedder, file: Path, skip_errors: bool) -> Tensor | str:
    """The prepared image, or why it cannot be read."""
    try:
        return embedder.preprocessing.pixels(file)
    except (CorruptDataError, ValueError) as error:
        if not skip_errors:
            raise
        return str(error)


def save_features(features: Features, path: str | os.PathLike[str]) -> None:
    """Write features ``(n, d)`` with their files, fingerprint and a checksum; the file appears whole or not at all.

    A path that ends in ``.npy`` gets the numbers alone, as NumPy reads them.

    >>> import tempfile
    >>> made = Features(torch.eye(2), ["a.png", "b.png"], fingerprint="3f9c")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_features(made, f"{folder}/features.npy")
    ...     np.load(f"{folder}/features.npy").shape
    (2, 2)
    """
    if Path(path).suffix == ".npy":
        with_suffix = features.features.contiguous().numpy()
        write_atomically(path, lambda temporary: _save_array(temporary, with_suffix))
        return
    tensors = {"features": features.features.contiguous()}
    content = {"files": features.files, "fingerprint": features.fingerprint}
    header = json.dumps({"sha256": checksum(content, tensors), "content": content})
    write_atomically(path, lambda temporary: safetensors.torch.save_file(tensors, temporary, {FORMAT: header}))


def load_features(path: str | os.PathLike[str]) -> Features:
    """Read what :func:`save_features` wrote; a damaged file is a ``ValueError``.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_features(Features(torch.eye(2), ["a.png", "b.png"], "3f9c"), f"{folder}/made.safetensors")
    ...     load_features(f"{folder}/made.safetensors").files
    ['a.png', 'b.png']
    """
    header, tensors = read_file(path, FORMAT)
    content = header.get("content")
    if not isinstance(content, dict) or header.get("sha256") != checksum(content, tensors):
        raise ValueError(f"{path} is damaged: its checksum does not fit its content")
    return Features(tensors["features"], list(content["files"]), str(content["fingerprint"]))


def _save_array(path: str, array: np.ndarray) -> None:
    with open(path, "wb") as file:
        np.save(file, array, allow_pickle=False)
