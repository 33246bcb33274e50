"""Datasets saved by ``save_to_disk`` of Hugging Face's ``datasets``: a folder of Arrow files and a description."""

import json
import os
from pathlib import Path
from typing import Any

from ..._extras import require
from ..archive import check_inside
from ..errors import CorruptDataError, DataError, MissingDataError
from ..images import read_bytes
from .source import Record, Source

_OPTIONAL = ("category", "is_query", "is_gallery")


class HubSource(Source):
    """The rows of a saved ``Dataset``, or of all splits of a saved ``DatasetDict``. Reading them needs pyarrow, but not ``datasets``.

    Args:
        folder: The folder.
        images: The column of images; by default the only column of type Image.
        labels: The column of labels; by default the only column of type ClassLabel, else ``label`` or ``labels``.

    Raises:
        DataError: The columns are ambiguous, or the rows were reordered without being written again.
        CorruptDataError: A file is damaged.

    >>> import datasets  # doctest: +SKIP
    >>> datasets.load_dataset("uoft-cs/cifar10").save_to_disk("cifar10")  # doctest: +SKIP
    >>> source = HubSource("cifar10")  # doctest: +SKIP
    >>> len(source), source.splits  # doctest: +SKIP
    (60000, ('test', 'train'))
    """

    description = "a saved dataset"

    def __init__(self, folder: str | os.PathLike[str], images: str | None = None, labels: str | None = None):
        self.root = Path(folder)
        splits = _read_json(self.root / "dataset_dict.json")["splits"] if _is_dataset_dict(self.root) else [None]
        self._files: list[Path] = []
        self._rows: list[tuple[int, int]] = []
        self._tables: dict[int, Any] = {}
        self._column = ""
        records: list[Record] = []
        try:
            for split in splits:
                records += self._read_split(self.root / split if split else self.root, split, images, labels)
        except (DataError, ImportError):
            raise
        except Exception as error:  # a damaged file can raise any exception; its reason becomes part of the message
            reason = f"{type(error).__name__}: {error}".replace("\n", " ")
            raise CorruptDataError(f"{folder} is not a whole saved dataset: {reason}") from error
        super().__init__(str(folder), records)

    @classmethod
    def recognizes(cls, source: Any) -> bool:
        """Return whether ``source`` is a folder with the description of a saved ``Dataset`` or ``DatasetDict``."""
        if not isinstance(source, Path) or not source.is_dir():
            return False
        return _is_dataset_dict(source) or all(
            (source / name).is_file() for name in ("state.json", "dataset_info.json")
        )

    def _read_split(self, folder: Path, split: str | None, images: str | None, labels: str | None) -> list[Record]:
        features = _read_json(folder / "dataset_info.json")["features"]
        state = _read_json(folder / "state.json")
        if state.get("_indices_files"):
            raise DataError(f"{folder} holds an order of rows beside the rows: call flatten_indices() before saving")
        self._column = images or _find_column(folder, "images", features, "Image", ("image", "img"))
        column = labels or _find_column(folder, "labels", features, "ClassLabel", ("label", "labels", "fine_label"))
        for name in (self._column, column):
            if name not in features:
                raise DataError(f"{folder}: there is no column {name!r} among {', '.join(features)}")
        names = features[column].get("names")
        split_name = split or state.get("_split")
        records: list[Record] = []
        for file in state["_data_files"]:
            number = len(self._files)
            self._files.append(check_inside(folder / file["filename"], self.root))
            table = self._open_table(number)
            others = {name: table.column(name).to_pylist() for name in _OPTIONAL if name in features}
            for i, value in enumerate(table.column(column).to_pylist()):
                fields = {name: _convert_value(name, values[i]) for name, values in others.items()}
                label = names[value] if names and isinstance(value, int) else str(value)
                records.append(Record(f"{self._files[number]}[{i}]", label, split=split_name, **fields))
                self._rows.append((number, i))
        return records

    def fetch(self, index: int) -> Any:
        """Return the bytes in the row, or those of the file that the row names inside the folder."""
        number, row = self._rows[index]
        value = self._open_table(number).column(self._column)[row].as_py()
        content = value.get("bytes") if isinstance(value, dict) else value
        if content is None and isinstance(value, dict) and value.get("path"):
            return read_bytes(check_inside(self.root / value["path"], self.root))
        if not isinstance(content, bytes):
            raise CorruptDataError(
                f"{self.records[index].name}: the image must be bytes or a path, got {type(content)}"
            )
        return content

    def files(self) -> list[str]:
        """Return the Arrow files."""
        return list(map(str, self._files))

    def _open_table(self, number: int) -> Any:
        """Return the memory-mapped rows of one file. Each process has its own mapping."""
        if number not in self._tables:
            arrow = require("pyarrow", "tables")
            stream = arrow.memory_map(str(self._files[number]))
            self._tables[number] = arrow.ipc.open_stream(stream).read_all()
        return self._tables[number]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_tables": {}}


def _is_dataset_dict(folder: Path) -> bool:
    """Return whether a folder holds a saved ``DatasetDict``."""
    return (folder / "dataset_dict.json").is_file()


def _read_json(path: Path) -> Any:
    if not path.is_file():
        raise MissingDataError(f"there is no file {path}")
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise CorruptDataError(f"{path} is not JSON: {error}") from error


def _find_column(folder: Path, what: str, features: dict[str, Any], kind: str, common_names: tuple[str, ...]) -> str:
    """Return the only column of this type, or one with a common name."""
    typed = [name for name, feature in features.items() if isinstance(feature, dict) and feature.get("_type") == kind]
    candidates = [name for name in common_names if name in (typed or features)] or typed
    if not candidates or (len(candidates) > 1 and candidates[0] not in common_names):
        raise DataError(f"{folder}: say which column holds the {what}, {what}=NAME, among {', '.join(features)}")
    return candidates[0]


def _convert_value(name: str, value: Any) -> Any:
    if value is None:
        return None
    return bool(value) if name.startswith("is_") else str(value)
