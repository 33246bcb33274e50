"""Pictures of a dataset's archive: decoded once, then read from a cache file with a checksum."""

import hashlib
import json
import re
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from ..files import load_tree, save_tree
from .archive import list_files
from .decoded_cache import get_cache_folder
from .roots import Folder

MIN_PICTURES_TO_CACHE = 5_000  # fewer pictures are decoded in a second or two


class ArchivedPictures(NamedTuple):
    """Pictures sorted by name, and the content of text files by file name."""

    names: list[str]
    data: UInt8[Tensor, "n c h w"]
    texts: dict[str, bytes]


def read_archived_pictures(
    folder: Folder,
    source: Path,
    pattern: re.Pattern[str],
    prepare: Callable[[str, bytes], UInt8[np.ndarray, "c h w"]],
    setting: object,
    layout: str,
    texts: tuple[str, ...] = (),
) -> ArchivedPictures:
    """Decode every picture of an archive or folder whose name matches ``pattern``, and read the files in ``texts``.

    If there are at least 5,000 pictures, they are cached in :func:`get_cache_folder`. The name of the cache file is a digest
    of ``setting``, ``pattern``, and the path, size and modification time of the source, so a changed source is decoded again.
    A cache file with a wrong checksum is replaced. If the folder is not writable, a warning is issued and nothing is cached.

    Args:
        folder: The dataset's folder, for error messages.
        source: The archive or folder to read.
        pattern: Matches the names of the pictures.
        prepare: Decodes a picture, given its name and content.
        setting: The settings of ``prepare`` as JSON, part of the cache key.
        layout: The expected names, for the error message if no picture matches.
        texts: Names of text files to return as well.

    Raises:
        CorruptDataError: If there is no picture, a picture is damaged, or the pictures differ in size.
    """
    cache_file = get_cache_folder() / f"{_compute_digest(source, pattern, setting)}.safetensors"
    if cache_file.exists():
        try:
            tree = load_tree(cache_file)
            stored = {name: text.encode("latin-1") for name, text in tree["texts"].items()}
            return ArchivedPictures(tree["names"].split("\n"), tree["data"], stored)
        except ValueError as error:
            warnings.warn(f"the decoded pictures of {source} are decoded again: {error}", stacklevel=2)
    pictures, text_files = _decode_members(folder, source, pattern, prepare, layout, texts)
    names = sorted(pictures)
    result = ArchivedPictures(names, torch.from_numpy(np.stack([pictures[name] for name in names])), text_files)
    if len(names) >= MIN_PICTURES_TO_CACHE:
        try:
            cache_file.parent.mkdir(parents=True, exist_ok=True)
            decoded = {name: content.decode("latin-1") for name, content in text_files.items()}
            save_tree({"names": "\n".join(names), "data": result.data, "texts": decoded}, cache_file)
        except OSError as error:
            warnings.warn(
                f"the decoded pictures of {source} are not cached: {error}; set HYPERSPHERE_CACHE to a writable folder",
                stacklevel=2,
            )
    return result


def _decode_members(
    folder: Folder,
    source: Path,
    pattern: re.Pattern[str],
    prepare: Callable[[str, bytes], UInt8[np.ndarray, "c h w"]],
    layout: str,
    texts: tuple[str, ...],
) -> tuple[dict[str, UInt8[np.ndarray, "c h w"]], dict[str, bytes]]:
    pictures, text_files = {}, {}
    for name, content in folder.walk(source, lambda name: name.endswith(texts) or pattern.search(name) is not None):
        file_name = name.rpartition("/")[2]
        if file_name in texts:
            text_files[file_name] = content
        elif pattern.search(name):
            pictures[name] = prepare(name, content)
    if not pictures:
        raise folder.make_corrupt_error(source, "no picture", layout)
    shapes = Counter(picture.shape[1:] for picture in pictures.values())
    if len(shapes) > 1:
        rarest = min(shapes, key=shapes.__getitem__)
        example = next(name for name, picture in pictures.items() if picture.shape[1:] == rarest)
        raise folder.make_corrupt_error(source, f"{example} in images of sizes {sorted(shapes)}", "images of one size")
    return pictures, text_files


def _compute_digest(source: Path, pattern: re.Pattern[str], setting: object) -> str:
    files = [source / name for name in list_files(source)] if source.is_dir() else [source]
    stamps = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(json.dumps([pattern.pattern, setting, stamps]).encode()).hexdigest()
