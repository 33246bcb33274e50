"""Find the format of a source and open it. All commands open their data with :func:`open_source`."""

import functools
import importlib.metadata
import inspect
import logging
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from torch.utils.data import Dataset

from ..errors import DataError, MissingDataError
from ..images import explain_ending
from .source import Record, Source, summarize_unused

ENTRY_POINTS = "hypersphere.sources"
MAX_NAMES_IN_WARNING = 20
log = logging.getLogger("hypersphere.data")


def open_source(
    source: "str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Source | Dataset[Any] | tuple[Any, Any]",
    *,
    split: str | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    identities: int = 2,
    loose: Literal["skip", "keep"] = "skip",
    depth: int | None = None,
    root: str | os.PathLike[str] | None = None,
    images: str | None = None,
    labels: str | None = None,
    category: str | None = None,
    skip_missing: bool | None = None,
) -> Source:
    """Open labeled samples in any format. Samples are read on demand.

    The identity of a file in a folder is the name of the first folder level.

    Args:
        source: A folder with one sub-folder per identity; a table (``.csv``, ``.tsv``, ``.parquet``) with the columns path
            and label; tar shards (a ``.tar`` file, a folder of them, ``name-{000..127}.tar``); an ``.npz`` file, or a folder
            that contains only such a file; a dataset saved by ``datasets``; the file of a picture or recording; a list of any
            of these; a torch dataset of (image, label); a pair of arrays (images, labels); or an open source. Formats of
            other installed packages are found by their entry points.
        split: Keep only the records of this split.
        on_error: "skip" decodes every sample once, leaves out unreadable samples, and lists them in a warning. "raise"
            decodes nothing; an unreadable sample raises an error when it is read.
        identities: Minimum number of identities.
        loose: "keep" also uses files beside the sub-folders of identities; their label is the name of the folder. "skip"
            leaves them out, unless no sub-folder contains samples.
        depth: For a folder, the number of folder levels that name an identity; 1 by default.
        root: For a table, the folder that its paths are relative to; by default the folder of the table.
        images: The name of the array (``.npz``) or column (table, saved dataset) of images.
        labels: The name of the array or column of labels.
        category: For a table, the name of the column of groups, such as age, whose error rates are compared.
        skip_missing: For a table, leave out rows whose file does not exist and list them in ``missing`` of the source. By
            default such a row is an error, unless ``on_error`` is "skip".

    Returns:
        The open source.

    Raises:
        DataError: The source cannot be used. The message contains the reason.
        ValueError: The format of the source does not have one of the options.

    >>> import numpy as np
    >>> source = open_source((np.zeros((6, 8, 8), dtype=np.uint8), ["ann", "ann", "ann", "bob", "bob", "bob"]))
    >>> len(source), source.records[3].label
    (6, 'bob')
    """
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error must be 'raise' or 'skip', got {on_error!r}")
    if loose not in ("skip", "keep"):
        raise ValueError(f"loose must be 'skip' or 'keep', got {loose!r}")
    options = {"depth": depth, "root": root, "images": images, "labels": labels, "category": category}
    general = {"loose": loose, "skip_missing": on_error == "skip" if skip_missing is None else skip_missing}
    opened = _open(source, {name: value for name, value in options.items() if value is not None}, general)
    if not isinstance(source, Source):  # for an open source, this was logged when it was opened
        unused = opened.find_unused()
        if unused:
            log.warning("%s: not used: %s", opened.name, summarize_unused(unused))
    missing = opened.missing
    if split is not None:
        opened = opened.part(split=split)
        opened.missing = missing
    if on_error == "skip":
        opened, reasons = opened.drop_unreadable()
        _warn_about([f"there is no file {name}" for name in missing] + list(reasons.values()))
    if len(opened.classes) < identities:
        found = f"one identity ({opened.classes[0]})" if len(opened.classes) == 1 else "no identity"
        if len(opened.classes) > 1:
            found = f"{len(opened.classes)} identities"
        raise DataError(f"{opened.name} holds {found}; at least {identities} are needed{opened.advice}")
    return opened


@functools.cache
def source_formats() -> tuple[type[Source], ...]:
    """Return all formats in the order in which they are tried: those of other packages first, general formats last.

    >>> [kind.__name__ for kind in source_formats() if kind.is_general]
    ['DatasetSource', 'FolderSource']
    """
    package = sys.modules[__package__ or ""]
    exported = [getattr(package, name) for name in package.__all__]
    own = [kind for kind in exported if inspect.isclass(kind) and issubclass(kind, Source) and kind is not Source]
    return tuple(sorted([*_load_installed_formats(), *own], key=lambda kind: kind.is_general))


class CombinedSource(Source):
    """Several sources as one, such as files and folders on a command line.

    Args:
        parts: The sources, in the order of their records.

    >>> one, two = (open_source((torch.zeros(2, 8, 8), [name, name]), identities=1) for name in ("ann", "bob"))
    >>> CombinedSource([one, two]).classes
    ('ann', 'bob')
    """

    description = "a list of paths"

    def __init__(self, parts: Sequence[Source]):
        self.parts = tuple(parts)
        records: list[Record] = [record for part in self.parts for record in part.records]
        super().__init__(", ".join(part.name for part in self.parts), records)
        self.missing = tuple(name for part in self.parts for name in part.missing)
        self._positions = [(part, i) for part in self.parts for i in range(len(part))]

    @classmethod
    def recognizes(cls, source: Any) -> bool:
        """Return whether ``source`` is a list or tuple of paths."""
        return (
            isinstance(source, list | tuple)
            and bool(source)
            and all(isinstance(path, str | os.PathLike) for path in source)
        )

    def fetch(self, index: int) -> Any:
        """Return the sample from its part."""
        part, i = self._positions[index]
        return part.fetch(i)

    def find_unused(self) -> dict[str, tuple[str, ...]]:
        """Return unused files and folders of all parts by reason."""
        unused: dict[str, tuple[str, ...]] = {}
        for part in self.parts:
            for why, names in part.find_unused().items():
                unused[why] = (*unused.get(why, ()), *names)
        return unused

    def files(self) -> list[str]:
        """Return the files of all parts."""
        return [file for part in self.parts for file in part.files()]


def _open(source: Any, options: dict[str, Any], general: dict[str, Any]) -> Source:
    """Open a source without reading its samples; ``general`` options are passed only to formats that accept them."""
    if isinstance(source, Source):
        if options:
            raise ValueError(f"{next(iter(options))} does not belong to an open source, which takes no option")
        return source
    if CombinedSource.recognizes(source):
        return CombinedSource([_open(path, options, general) for path in source])
    source = Path(source) if isinstance(source, str | os.PathLike) else source
    kind = next((kind for kind in source_formats() if kind.recognizes(source)), None)
    if kind is None:
        raise _build_unknown_source_error(source)
    accepted = _list_accepted_options(kind)
    unknown = [name for name in options if name not in accepted]
    if unknown:
        own = ", ".join(name for name in accepted if name not in general) or "no option"
        raise ValueError(f"{unknown[0]} does not belong to {kind.description}, which takes {own}")
    return kind.open(source, **options, **{name: value for name, value in general.items() if name in accepted})


def _list_accepted_options(kind: type[Source]) -> tuple[str, ...]:
    parameters = inspect.signature(kind.open).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        parameters = inspect.signature(kind).parameters.values()
    return tuple(p.name for p in parameters)[1:]


def _build_unknown_source_error(source: Any) -> Exception:
    if not isinstance(source, Path):
        return ValueError(f"a source must be a path, a dataset or a pair of arrays, got {type(source).__name__}")
    if not source.exists():
        return MissingDataError(f"there is no file or folder {source}")
    known = ", ".join(dict.fromkeys(kind.description for kind in source_formats()))
    remedy = explain_ending(source.suffix)
    return DataError(f"{source} is not a source: {known} is{f'; {remedy}' if remedy else ''}")


def _load_installed_formats() -> list[type[Source]]:
    """Return the formats of other installed packages; warn about a format that cannot be imported."""
    found = []
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
        try:
            kind = entry.load()
            if not (inspect.isclass(kind) and issubclass(kind, Source)):
                raise TypeError(f"{entry.value} is not a subclass of hypersphere.data.Source")
            found.append(kind)
        except Exception as error:  # noqa: PERF203  (foreign code can raise any exception)
            warnings.warn(f"the source format {entry.name} ({entry.value}) is not available: {error}", stacklevel=2)
    return found


def _warn_about(reasons: list[str]) -> None:
    if reasons:
        more = "; …" if len(reasons) > MAX_NAMES_IN_WARNING else ""
        listed = "; ".join(reasons[:MAX_NAMES_IN_WARNING]) + more
        warnings.warn(f"{len(reasons)} samples cannot be read and are left out: {listed}", stacklevel=3)
