"""The integrity check of an SQLite gallery: the checksums of all rows and records, and the references between them."""

import sqlite3
from collections.abc import Iterator

import numpy as np

from . import template_file
from .sqlite_database import row_checksum
from .store import Settings, normalize_name
from .template_file import TemplateFile

MAX_LISTED_PROBLEMS = 20  # per kind; further problems are only counted


def find_problems(db: sqlite3.Connection, meta: Settings, path: TemplateFile) -> list[str]:
    """Return the problems of a gallery: a damaged database, wrong checksums, and inconsistent rows."""
    problems = [f"the database: {row[0]}" for row in db.execute("PRAGMA integrity_check") if row[0] != "ok"]
    for check in (_check_names(db, meta), _check_templates(db, meta, path), _check_counterexamples(db, meta)):
        listed = list(check)
        more = len(listed) - MAX_LISTED_PROBLEMS
        problems += listed[:MAX_LISTED_PROBLEMS] + ([f"and {more} more like the last"] if more > 0 else [])
    return problems


def _check_names(db: sqlite3.Connection, meta: Settings) -> Iterator[str]:
    rows = db.execute("SELECT id, name, templates, checksum FROM identities").fetchall()
    for owner, name, count, checksum in rows:
        if checksum != row_checksum(owner, name, count):
            yield f"the name {name!r} does not match its checksum"
        elif name != normalize_name(name):
            yield f"the name {name!r} is not in its normal form"
    if len(rows) != int(meta["people"] or 0):
        yield f"{meta['people']} identities were enrolled, {len(rows)} are stored"


def _check_templates(db: sqlite3.Connection, meta: Settings, path: TemplateFile) -> Iterator[str]:
    records = template_file.map_records(path, int(meta.get("dim") or 0), int(meta["rows"] or 0))
    removed = {number for (number,) in db.execute("SELECT number FROM removed")}
    people = {owner for (owner,) in db.execute("SELECT id FROM identities")}
    numbers, owners = (np.ascontiguousarray(records[key]) for key in ("number", "identity"))
    if (np.diff(numbers) <= 0).any():
        yield f"{path.name}: templates are not in the order of their numbers"
    for slot in template_file.find_damaged(records).tolist():
        if int(numbers[slot]) not in removed:
            yield f"{path.name}: template {numbers[slot]} does not match its checksum"
    count = 0
    owner_by_number = dict(zip(numbers.tolist(), owners.tolist(), strict=True))
    for owner, source, number, checksum in db.execute("SELECT identity, source, number, checksum FROM templates"):
        count += 1
        if checksum != row_checksum(owner, source, number):
            yield f"template {number} of {source or 'no file'} does not match its checksum"
        elif owner not in people or owner_by_number.get(number) != owner or number in removed:
            yield f"template {number} of {source or 'no file'} has no identity or no feature"
    if count != len(records) - len(removed):
        yield f"{len(records) - len(removed)} templates were enrolled, {count} are listed"


def _check_counterexamples(db: sqlite3.Connection, meta: Settings) -> Iterator[str]:
    count = 0
    people = {owner for (owner,) in db.execute("SELECT id FROM identities")}
    for owner, source, content, checksum in db.execute(
        "SELECT identity, source, feature, checksum FROM counterexamples"
    ):
        count += 1
        if checksum != row_checksum(owner, source, content.hex()):
            yield f"the counter-example {source or 'without a file'} does not match its checksum"
        elif owner not in people:
            yield f"the counter-example {source or 'without a file'} has no identity"
    if count != int(meta["counterexamples"] or 0):
        yield f"{meta['counterexamples']} counter-examples were added, {count} are stored"
