"""A table of paths and labels: CSV, tab-separated, or Parquet."""

import csv
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..._extras import require
from ..errors import CorruptDataError, DataError, MissingDataError
from ..images import read_bytes
from ..preprocessing import Box
from .source import Record, Source

BOX = ("x_1", "y_1", "x_2", "y_2")
COLUMNS = ("path", "label", "split", "is_query", "is_gallery", "category", *BOX)
_TRUE, _FALSE = {"true", "1", "1.0", "yes"}, {"false", "0", "0.0", "no"}


class TableSource(Source):
    """Rows with the columns ``path`` and ``label`` and, where there are any, those of :class:`Record`.

    Paths are relative to ``root``, by default the table's folder. A cell that is empty says nothing. ``x_1 y_1 x_2 y_2`` are
    the corners of the crop box in pixels. With ``skip_missing`` rows whose file is not there are left out
    and named in ``missing``.

    Raises:
        MissingDataError: if there is no such table or, without ``skip_missing``, no file that one of its rows names.
        CorruptDataError: if it is no table, lacks a column, or a cell cannot be what its column says.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "1.pgm").write_bytes(b"P5 2 2 255 1234")
    ...     _ = pathlib.Path(folder, "faces.csv").write_text("path,label,split\\n1.pgm,ann,train\\n2.pgm,bob,train\\n")
    ...     source = TableSource(f"{folder}/faces.csv", skip_missing=True)
    >>> [(record.label, record.split) for record in source.records], len(source.missing)
    ([('ann', 'train')], 1)
    """

    def __init__(
        self, table: str | os.PathLike[str], root: str | os.PathLike[str] | None = None, *, skip_missing: bool = False
    ):
        path = Path(table)
        if not path.is_file():
            raise MissingDataError(f"there is no table {path}")
        self.root = path.parent if root is None else Path(root)
        rows = _parquet(path) if path.suffix == ".parquet" else _csv(path)
        records = [_record(path, number, row, self.root) for number, row in rows]
        gone = next(((n, r) for (n, _), r in zip(rows, records, strict=True) if not os.path.isfile(r.name)), None)
        if gone is not None and not skip_missing:
            raise MissingDataError(f"{path}, row {gone[0]}: there is no file {gone[1].name}")
        self.missing = tuple(record.name for record in records if gone and not os.path.isfile(record.name))
        absent = set(self.missing)
        super().__init__(str(path), [record for record in records if record.name not in absent])

    def fetch(self, index: int) -> bytes:
        """The content of the file."""
        return read_bytes(self.records[index].name)

    def files(self) -> list[str]:
        """One for each record."""
        return [record.name for record in self.records]


Rows = Sequence[tuple[int, Mapping[str, Any]]]


def _csv(path: Path) -> Rows:
    """Rows by their line numbers, the header being line 1."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ",", strict=True)
            _check_header(path, reader.fieldnames or ())
            return [(reader.line_num, row) for row in reader]
    except (csv.Error, UnicodeDecodeError) as error:
        raise CorruptDataError(f"{path} is not a table of comma-separated values in UTF-8: {error}") from error


def _parquet(path: Path) -> Rows:
    arrow = require("pyarrow.parquet", "tables")
    try:
        file = arrow.ParquetFile(path)
        names = [name for name in COLUMNS if name in file.schema_arrow.names]
        _check_header(path, names)
        table = file.read(columns=names)
    except DataError:
        raise
    except Exception as error:  # damaged files fail in any way; the reason goes into the message
        raise CorruptDataError(f"{path} is not a whole Parquet file: {error}".replace("\n", " ")) from error
    columns = {name: table.column(name).to_pylist() for name in names}
    return [(i + 1, {name: columns[name][i] for name in names}) for i in range(table.num_rows)]


def _check_header(path: Path, names: Sequence[str]) -> None:
    absent = [name for name in ("path", "label") if name not in names]
    some = [name for name in BOX if name in names]
    if absent or 0 < len(some) < 4:
        wanted = "path and label" if absent else f"all of {' '.join(BOX)} or none"
        raise CorruptDataError(f"{path} must have the columns {wanted}, got {', '.join(map(str, names)) or 'none'}")


def _record(path: Path, number: int, row: Mapping[str, Any], root: Path) -> Record:
    cells = {name: _text(row.get(name)) for name in COLUMNS}
    if not cells["path"] or cells["label"] is None:
        raise CorruptDataError(f"{path}, row {number}: a path and a label are needed, got {dict(row)}")
    try:
        return Record(
            name=str(root / cells["path"]),
            label=cells["label"],
            split=cells["split"],
            is_query=_flag("is_query", cells["is_query"]),
            is_gallery=_flag("is_gallery", cells["is_gallery"]),
            category=cells["category"],
            box=_box([cells[name] for name in BOX]),
        )
    except ValueError as error:
        raise CorruptDataError(f"{path}, row {number}: {error}") from error


def _text(cell: Any) -> str | None:
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return None
    text = str(int(cell) if isinstance(cell, float) and cell.is_integer() else cell).strip()
    return text or None


def _flag(name: str, text: str | None) -> bool | None:
    if text is None or text.lower() == "nan":
        return None
    if text.lower() not in _TRUE | _FALSE:
        raise ValueError(f"{name} must be true or false, got {text!r}")
    return text.lower() in _TRUE


def _box(texts: Sequence[str | None]) -> Box | None:
    if all(text is None or text.lower() == "nan" for text in texts):
        return None
    try:
        left, top, right, bottom = (float(text or "nan") for text in texts)
        box = (int(left), int(top), int(right), int(bottom))
        right_order = 0 <= left < right and 0 <= top < bottom
    except (ValueError, OverflowError):
        right_order = False
    if not right_order or list(box) != [left, top, right, bottom]:
        raise ValueError(f"{' '.join(BOX)} must be whole numbers with 0 ≤ x_1 < x_2 and 0 ≤ y_1 < y_2, got {texts}")
    return box
