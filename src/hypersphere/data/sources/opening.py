"""From what a user has to a source: one function for every kind."""

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from torch.utils.data import Dataset

from ..errors import DataError, MissingDataError
from ..images import ENDINGS
from .array_source import ArraySource, read_arrays
from .dataset_source import DatasetSource
from .folder_source import FolderSource
from .hub_source import HubSource, is_saved
from .shard_source import ShardSource
from .source import Source
from .table_source import TableSource


def open_source(
    source: "str | os.PathLike[str] | Source | Dataset[Any] | tuple[Any, Any]",
    *,
    split: str | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    identities: int = 2,
    depth: int | None = None,
    root: str | os.PathLike[str] | None = None,
    images: str | None = None,
    labels: str | None = None,
    skip_missing: bool | None = None,
) -> Source:
    """The pictures of a source, with their labels, read when asked for.

    Args:
        source: A folder with a sub-folder for each identity; a table (``.csv``, ``.tsv``, ``.parquet``) with the columns path and
            label; tar shards (a ``.tar``, a folder of them, ``name-{000..127}.tar``); an ``.npz``, or a folder that holds nothing
            but one; a folder that ``datasets`` saved; a torch dataset of (image, label); or a pair of arrays (images, labels).
        split: Only the records of this split.
        on_error: "skip" decodes every image once and leaves out those that cannot be read, with a warning that names them;
            "raise" decodes none, and a bad one is an error when it is reached.
        identities: The least number of identities there must be.
        depth: Of a folder, the levels that name an identity; 1 by default.
        root: Of a table, the folder that its paths are relative to; by default its own.
        images: Of an ``.npz`` or a saved dataset, the array or column of images.
        labels: The array or column of labels.
        skip_missing: Of a table, leave out rows whose file is not there and name them in ``missing`` of the source; by default
            such a row is an error, unless ``on_error`` is "skip".

    Raises:
        DataError: with one sentence that says what is wrong with the source.
        ValueError: if an option does not belong to this kind of source.

    >>> import numpy as np
    >>> source = open_source((np.zeros((6, 8, 8), dtype=np.uint8), ["ann", "ann", "ann", "bob", "bob", "bob"]))
    >>> len(source), source.records[3].label
    (6, 'bob')
    """
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error must be 'raise' or 'skip', got {on_error!r}")
    options = {"depth": depth, "root": root, "images": images, "labels": labels, "skip_missing": skip_missing}
    kind, opener, accepted = _kind(source, on_error == "skip")
    given = {name: value for name, value in options.items() if value is not None}
    foreign = [name for name in given if name not in accepted]
    if foreign:
        raise ValueError(f"{foreign[0]} does not belong to {kind}, which takes {', '.join(accepted) or 'no option'}")
    opened = opener(**given)
    if split is not None:
        opened = opened.part(split=split)
    if on_error == "skip":
        missing = getattr(opened, "missing", ())
        opened, reasons = opened.readable()
        _warn_of([f"there is no file {name}" for name in missing] + list(reasons.values()))
    if len(opened.classes) < identities:
        alone = (
            f"one identity ({opened.classes[0]})" if len(opened.classes) == 1 else f"{len(opened.classes)} identities"
        )
        raise DataError(f"{opened.name} holds {alone}; at least {identities} are needed")
    return opened


Opener = Callable[..., Source]


def _kind(source: Any, skip: bool) -> tuple[str, Opener, tuple[str, ...]]:
    """What kind of source it is in words, how it is opened, and with which options."""
    if isinstance(source, Source):
        return "a source", lambda: source, ()
    if isinstance(source, tuple) and len(source) == 2:
        return "a pair of arrays", lambda: ArraySource(*source), ()
    if isinstance(source, str | os.PathLike):
        return _path(Path(source), skip)
    if hasattr(source, "__getitem__") or isinstance(source, Dataset):
        return "a dataset", lambda: DatasetSource(source), ()
    raise ValueError(f"a source must be a path, a dataset or a pair of arrays, got {type(source).__name__}")


def _path(path: Path, skip: bool) -> tuple[str, Opener, tuple[str, ...]]:
    arrays = ("images", "labels")
    if path.suffix == ".tar":
        return "tar shards", lambda: ShardSource(path), ()
    if path.suffix in (".csv", ".tsv", ".parquet"):
        return "a table", lambda **given: TableSource(path, **{"skip_missing": skip, **given}), ("root", "skip_missing")
    if path.suffix == ".npz":
        return "an array set", lambda **given: read_arrays(path, **given), arrays
    if not path.exists():
        raise MissingDataError(f"there is no file or folder {path}")
    if not path.is_dir():
        raise DataError(f"{path} is not a source: a folder, .csv, .tsv, .parquet, .tar or .npz is")
    if is_saved(path):
        return "a saved dataset", lambda **given: HubSource(path, **given), arrays
    try:
        inside = [entry for entry in path.iterdir() if not entry.name.startswith(".")]
    except OSError as error:
        raise DataError(f"the folder {path} cannot be read: {error.strerror or error}") from error
    if not any(entry.is_dir() or entry.suffix.lower() in ENDINGS for entry in inside):
        stored = [entry for entry in inside if entry.suffix == ".npz"]
        if len(stored) == 1:
            return "an array set", lambda **given: read_arrays(stored[0], **given), arrays
        if any(entry.suffix == ".tar" for entry in inside):
            return "tar shards", lambda: ShardSource(path), ()
    return "a folder", lambda **given: FolderSource(path, **given), ("depth",)


def _warn_of(reasons: list[str]) -> None:
    if reasons:
        shown = "; ".join(reasons[:20]) + ("; …" if len(reasons) > 20 else "")
        warnings.warn(f"{len(reasons)} pictures cannot be read and are left out: {shown}", stacklevel=3)
