"""Pictures of a dataset's archive, decoded once and then read from a cache file with a checksum."""

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
from .archive import names_in
from .decoded_cache import cache_folder
from .roots import Folder

WORTH_KEEPING = 5_000
"""Fewer pictures than this are decoded in a second or two, and are not kept."""


class ArchivedPictures(NamedTuple):
    """Pictures in the order of their names, and the text files beside them by file name."""

    names: list[str]
    data: UInt8[Tensor, "n c h w"]
    texts: dict[str, bytes]


def archived_pictures(
    folder: Folder,
    source: Path,
    wanted: re.Pattern[str],
    prepare: Callable[[str, bytes], UInt8[np.ndarray, "c h w"]],
    setting: object,
    layout: str,
    texts: tuple[str, ...] = (),
) -> ArchivedPictures:
    """Return every picture of ``source`` (an archive or a folder) whose name matches ``wanted``, and the files in ``texts``.

    Sets of at least 5,000 pictures are cached in :func:`cache_folder`. The name of the cache file is a digest of ``setting``,
    ``wanted``, and the path, size and modification time of the source, so a changed source is decoded again. The content has a
    checksum, and a damaged file is replaced. If the folder is not writable, a warning is issued and nothing is cached.

    Args:
        folder: The dataset's folder, for error messages.
        source: The archive or folder to read.
        wanted: A pattern for the names of the pictures.
        prepare: A function of name and content that returns the decoded picture.
        setting: The settings of ``prepare`` as JSON, part of the cache key.
        layout: A description of the expected names, for the error if there is no picture.
        texts: Names of further files to return.

    Raises:
        CorruptDataError: If a picture is damaged or differs in size from the others.
    """
    kept = cache_folder() / f"{_digest(source, wanted, setting)}.safetensors"
    if kept.exists():
        try:
            tree = load_tree(kept)
            return ArchivedPictures(tree["names"].split("\n"), tree["data"], _encode_texts(tree["texts"]))
        except ValueError as error:
            warnings.warn(f"the decoded pictures of {source} are made anew: {error}", stacklevel=2)
    pictures, found = _decode_members(folder, source, wanted, prepare, layout, texts)
    names = sorted(pictures)
    result = ArchivedPictures(names, torch.from_numpy(np.stack([pictures[name] for name in names])), found)
    if len(names) >= WORTH_KEEPING:
        try:
            kept.parent.mkdir(parents=True, exist_ok=True)
            stored = {name: content.decode("latin-1") for name, content in found.items()}
            save_tree({"names": "\n".join(names), "data": result.data, "texts": stored}, kept)
        except OSError as error:
            warnings.warn(
                f"the decoded pictures of {source} are not kept: {error}; set HYPERSPHERE_CACHE to a folder that can be written",
                stacklevel=2,
            )
    return result


def _decode_members(
    folder: Folder,
    source: Path,
    wanted: re.Pattern[str],
    prepare: Callable[[str, bytes], UInt8[np.ndarray, "c h w"]],
    layout: str,
    texts: tuple[str, ...],
) -> tuple[dict[str, UInt8[np.ndarray, "c h w"]], dict[str, bytes]]:
    pictures, found = {}, {}
    for name, content in folder.walk(source, lambda name: name.endswith(texts) or wanted.search(name) is not None):
        last = name.rpartition("/")[2]
        if last in texts:
            found[last] = content
        elif wanted.search(name):
            pictures[name] = prepare(name, content)
    if not pictures:
        raise folder.corrupt(source, "no picture", layout)
    shapes = Counter(picture.shape[1:] for picture in pictures.values())
    if len(shapes) > 1:
        rarest = min(shapes, key=shapes.__getitem__)
        odd = next(name for name, picture in pictures.items() if picture.shape[1:] == rarest)
        raise folder.corrupt(source, f"{odd} in images of sizes {sorted(shapes)}", "images of one size")
    return pictures, found


def _encode_texts(texts: dict[str, str]) -> dict[str, bytes]:
    return {name: text.encode("latin-1") for name, text in texts.items()}


def _digest(source: Path, wanted: re.Pattern[str], setting: object) -> str:
    files = [source / name for name in names_in(source)] if source.is_dir() else [source]
    stamps = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(json.dumps([wanted.pattern, setting, stamps]).encode()).hexdigest()
