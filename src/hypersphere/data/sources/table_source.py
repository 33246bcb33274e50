"""A table of paths and labels: CSV, tab-separated, or Parquet."""

import csv
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..._extras import require
from ..errors import CorruptDataError, DataError, MissingDataError
from ..preprocessing import Region
from .source import PathSource, Record, make_time_region

BOX = ("x_1", "y_1", "x_2", "y_2")
TIMES = ("start", "end")
OPTIONAL_COLUMNS = ("split", "is_query", "is_gallery", "category", *BOX, *TIMES)
_TRUE, _FALSE = {"true", "1", "1.0", "yes"}, {"false", "0", "0.0", "no"}


class TableSource(PathSource):
    r"""Rows with a path and a label, and optionally the other fields of :class:`Record`.

    Empty cells are ignored. ``x_1 y_1 x_2 y_2`` are the corners of the crop box of a picture in pixels, ``start`` and ``end``
    the part of a recording in seconds.

    Args:
        table: The ``.csv``, ``.tsv`` or ``.parquet`` file.
        root: The folder that paths are relative to; by default the folder of the table.
        images: The column of paths.
        labels: The column of labels.
        category: The column of groups whose error rates are compared. A column with another name than the default must exist.
        skip_missing: Leave out rows whose file does not exist and list their names in ``missing``.

    Raises:
        MissingDataError: The table does not exist, or the file of a row does not exist and ``skip_missing`` is false.
        CorruptDataError: The file is not a table, a column is missing, or a cell has an invalid value.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "1.pgm").write_bytes(b"P5 2 2 255 1234")
    ...     _ = pathlib.Path(folder, "faces.csv").write_text("path,label,split\n1.pgm,ann,train\n2.pgm,bob,train\n")
    ...     source = TableSource(f"{folder}/faces.csv", skip_missing=True)
    >>> [(record.label, record.split) for record in source.records], len(source.missing)
    ([('ann', 'train')], 1)
    """

    description = "a table (.csv, .tsv, .parquet)"
    endings = (".csv", ".tsv", ".parquet")

    def __init__(
        self,
        table: str | os.PathLike[str],
        root: str | os.PathLike[str] | None = None,
        *,
        images: str = "path",
        labels: str = "label",
        category: str = "category",
        skip_missing: bool = False,
    ):
        path = Path(table)
        if not path.is_file():
            raise MissingDataError(f"there is no table {path}")
        self.root = path.parent if root is None else Path(root)
        required = (images, labels) if category == "category" else (images, labels, category)
        rows = (_read_parquet if path.suffix.lower() == ".parquet" else _read_csv)(path, required)
        records = [_build_record(path, number, row, self.root, (images, labels, category)) for number, row in rows]
        absent = {record.name for record in records if not os.path.isfile(record.name)}
        if absent and not skip_missing:
            number, record = next((n, r) for (n, _), r in zip(rows, records, strict=True) if r.name in absent)
            raise MissingDataError(f"{path}, row {number}: there is no file {record.name}")
        self.missing = tuple(record.name for record in records if record.name in absent)
        super().__init__(str(path), [record for record in records if record.name not in absent])


Rows = Sequence[tuple[int, Mapping[str, Any]]]


def _read_csv(path: Path, required: tuple[str, ...]) -> Rows:
    """Return (line number, row) of each row; the header is line 1."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", strict=True)
            _check_header(path, reader.fieldnames or (), required)
            return [(reader.line_num, row) for row in reader]
    except (csv.Error, UnicodeDecodeError) as error:
        raise CorruptDataError(f"{path} is not a table of comma-separated values in UTF-8: {error}") from error


def _read_parquet(path: Path, required: tuple[str, ...]) -> Rows:
    arrow = require("pyarrow.parquet", "tables")
    try:
        file = arrow.ParquetFile(path)
        names = [name for name in (*required, *OPTIONAL_COLUMNS) if name in file.schema_arrow.names]
        _check_header(path, file.schema_arrow.names, required)
        table = file.read(columns=names)
    except DataError:
        raise
    except Exception as error:  # a damaged file can raise any exception; its reason becomes part of the message
        raise CorruptDataError(f"{path} is not a whole Parquet file: {error}".replace("\n", " ")) from error
    columns = {name: table.column(name).to_pylist() for name in names}
    return [(i + 1, {name: columns[name][i] for name in names}) for i in range(table.num_rows)]


def _check_header(path: Path, names: Sequence[str], required: tuple[str, ...]) -> None:
    absent = [name for name in required if name not in names]
    partial = [group for group in (BOX, TIMES) if 0 < sum(name in names for name in group) < len(group)]
    if absent or partial:
        expected = " and ".join(required) if absent else f"all of {' '.join(partial[0])} or none"
        raise CorruptDataError(f"{path} must have the columns {expected}, got {', '.join(map(str, names)) or 'none'}")


def _build_record(path: Path, number: int, row: Mapping[str, Any], root: Path, columns: tuple[str, str, str]) -> Record:
    file, label, category = (_parse_text(row.get(name)) for name in columns)
    cells = {name: _parse_text(row.get(name)) for name in OPTIONAL_COLUMNS}
    if not file or label is None:
        raise CorruptDataError(f"{path}, row {number}: a path and a label are needed, got {dict(row)}")
    try:
        return Record(
            name=str(root / file),
            label=label,
            split=cells["split"],
            is_query=_parse_flag("is_query", cells["is_query"]),
            is_gallery=_parse_flag("is_gallery", cells["is_gallery"]),
            category=category,
            box=_parse_times(cells["start"], cells["end"]) or _parse_box([cells[name] for name in BOX]),
        )
    except ValueError as error:
        raise CorruptDataError(f"{path}, row {number}: {error}") from error


def _parse_text(cell: Any) -> str | None:
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return None
    text = str(int(cell) if isinstance(cell, float) and cell.is_integer() else cell).strip()
    return text or None


def _parse_flag(name: str, text: str | None) -> bool | None:
    if text is None or text.lower() == "nan":
        return None
    if text.lower() not in _TRUE | _FALSE:
        raise ValueError(f"{name} must be true or false, got {text!r}")
    return text.lower() in _TRUE


def _parse_times(start: str | None, end: str | None) -> Region | None:
    if all(text is None or text.lower() == "nan" for text in (start, end)):
        return None
    try:
        return make_time_region(float(start or "nan"), float(end or "nan"))
    except ValueError as error:
        raise ValueError(f"start and end must be seconds with 0 ≤ start < end, got {start!r} and {end!r}") from error


def _parse_box(texts: Sequence[str | None]) -> Region | None:
    if all(text is None or text.lower() == "nan" for text in texts):
        return None
    try:
        left, top, right, bottom = (float(text or "nan") for text in texts)
        box = (int(left), int(top), int(right), int(bottom))
        is_ordered = 0 <= left < right and 0 <= top < bottom
    except (ValueError, OverflowError):
        is_ordered = False
    if not is_ordered or list(box) != [left, top, right, bottom]:
        raise ValueError(f"{' '.join(BOX)} must be whole numbers with 0 ≤ x_1 < x_2 and 0 ≤ y_1 < y_2, got {texts}")
    return box
