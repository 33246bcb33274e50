"""Looking after an SQLite gallery: everything compared with its checksums, and copies while it is in use."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np

from ...files import write_atomically
from . import template_file
from .sqlite_database import read_meta, seal, write_meta
from .sqlite_reading import Meta
from .store import normal_name

MANY = 20  # problems of one kind that are listed; the rest is counted


def problems(db: sqlite3.Connection, meta: Meta, path: Path) -> list[str]:
    """Return what is wrong with a gallery: the database itself, checksums, and what must fit together but does not."""
    found = [f"the database: {row[0]}" for row in db.execute("PRAGMA integrity_check") if row[0] != "ok"]
    for kind in (_names(db, meta), _templates(db, meta, path)):
        listed = list(kind)
        found += listed[:MANY] + ([f"and {len(listed) - MANY} more like the last"] if len(listed) > MANY else [])
    return found


def write_backup(source: sqlite3.Connection, features: Path, target: Path) -> None:
    """Write a copy of the database and of the features' file that belongs to it; the database comes last, whole.

    Raises:
        ValueError: When there is something at ``target`` already.
    """
    if target.exists():
        raise ValueError(f"there is a file at {target} already: a backup takes the place of nothing")
    meta = read_meta(source)
    beside = target.with_name(f"{target.name}.features-0")
    beside.unlink(missing_ok=True)
    records = template_file.mapped(features, int(meta.get("dim") or 0), int(meta["rows"] or 0))
    try:
        template_file.append(beside, 0, template_file.chunks(records))
        write_atomically(target, lambda temporary: _copy(source, temporary), private=True)
    except BaseException as error:
        beside.unlink(missing_ok=True)
        if isinstance(error, sqlite3.Error):
            raise OSError(f"{target} cannot be written: {error}") from error
        raise


def _copy(source: sqlite3.Connection, temporary: str) -> None:
    with closing(sqlite3.connect(temporary, isolation_level=None)) as copy:
        source.backup(copy)
        write_meta(copy, "generation", 0)
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it


def _names(db: sqlite3.Connection, meta: Meta) -> Iterator[str]:
    rows = db.execute("SELECT id, name, templates, checksum FROM identities").fetchall()
    for owner, name, count, checksum in rows:
        if checksum != seal(owner, name, count):
            yield f"the name {name!r} does not fit its checksum"
        elif name != normal_name(name):
            yield f"the name {name!r} is not in its normal form"
    if len(rows) != int(meta["people"] or 0):
        yield f"{meta['people']} identities were enrolled, {len(rows)} are there"


def _templates(db: sqlite3.Connection, meta: Meta, path: Path) -> Iterator[str]:
    records = template_file.mapped(path, int(meta.get("dim") or 0), int(meta["rows"] or 0))
    removed = {number for (number,) in db.execute("SELECT number FROM removed")}
    people = {owner for (owner,) in db.execute("SELECT id FROM identities")}
    numbers, owners = (np.ascontiguousarray(records[key]) for key in ("number", "identity"))
    if (np.diff(numbers) <= 0).any():
        yield f"{path.name}: templates are not in the order of their numbers"
    for slot in template_file.damaged(records).tolist():
        if int(numbers[slot]) not in removed:
            yield f"{path.name}: template {numbers[slot]} does not fit its checksum"
    entered = 0
    owner_of = dict(zip(numbers.tolist(), owners.tolist(), strict=True))
    for owner, source, number, checksum in db.execute("SELECT identity, source, number, checksum FROM templates"):
        entered += 1
        if checksum != seal(owner, source, number):
            yield f"template {number} of {source or 'no file'} does not fit its checksum"
        elif owner not in people or owner_of.get(number) != owner or number in removed:
            yield f"template {number} of {source or 'no file'} has no identity or no feature"
    if entered != len(records) - len(removed):
        yield f"{len(records) - len(removed)} templates were enrolled, {entered} are entered"
