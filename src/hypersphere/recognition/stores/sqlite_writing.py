"""Changing an SQLite gallery: whose templates are new, what replaces what, and how removed ones leave the file."""

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from . import template_file
from .sqlite_database import seal
from .sqlite_reading import Meta, read_features

SAME = 1e-5  # features of one file may differ by rounding, relative to their length, and still be the same template
FEW = 1024  # removed records that are never worth a compaction


class WritePlan(NamedTuple):
    """What an enrolment does: identities of the rows, numbers they get, which rows are written, what they replace."""

    owners: list[int]
    numbers: list[int]
    written: list[int]
    replaced: list[tuple[int, str, int]]
    """identity, source and number of templates that give way"""


def owner_of(db: sqlite3.Connection, name: str) -> int | None:
    """Return the identity of a name, None if there is none."""
    row = db.execute("SELECT id FROM identities WHERE name = ?", (name,)).fetchone()
    return None if row is None else int(row[0])


def make_owners(db: sqlite3.Connection, names: Collection[str]) -> tuple[dict[str, int], set[int]]:
    """Return the identities of the names, made where they were missing, and which of them are new."""
    owners: dict[str, int] = {}
    fresh: set[int] = set()
    for name in dict.fromkeys(names):
        owner = owner_of(db, name)
        if owner is None:
            owner = int(db.execute("INSERT INTO identities VALUES (NULL, ?, 0, 0)", (name,)).lastrowid or 0)
            fresh.add(owner)
        owners[name] = owner
    return owners, fresh


def plan(
    db: sqlite3.Connection,
    meta: Meta,
    path: Path,
    rows: Float[np.ndarray, "n d"],
    owners: list[int],
    fresh: Collection[int],
    sources: Sequence[str],
) -> WritePlan:
    """Decide for every row: written, or known already because its identity has this source with the same feature."""
    last = {(owner, source): i for i, (owner, source) in enumerate(zip(owners, sources, strict=True)) if source}
    numbers, written, replaced = [0] * len(rows), [], []
    number = int(meta["next"] or 1)
    for i, (owner, source) in enumerate(zip(owners, sources, strict=True)):
        if source and last[owner, source] != i:
            continue  # the same source comes again; the last one counts
        known = _known(db, owner, source) if source and owner not in fresh else None
        if known is not None:
            kept = read_features(path, meta, owner, [known])[0].numpy()
            if np.abs(kept - rows[i]).max() <= SAME * np.linalg.norm(rows[i]):
                numbers[i] = known[0]
                continue
            replaced.append((owner, source, known[0]))
        numbers[i] = number
        number += 1
        written.append(i)
    numbers = [n or numbers[last[owners[i], sources[i]]] for i, n in enumerate(numbers)]
    return WritePlan(owners, numbers, written, replaced)


def write(
    db: sqlite3.Connection,
    meta: Meta,
    path: Path,
    rows: Float[np.ndarray, "n d"],
    sources: Sequence[str],
    what: WritePlan,
) -> None:
    """Append the records, on disk before anything says that they count, then enter them and take out the replaced."""
    if what.written:
        numbers, owners = (np.array(column, dtype=np.int64) for column in (what.numbers, what.owners))
        order = np.array(what.written, dtype=np.int64)

        def parts() -> Iterator[np.ndarray]:
            for start in range(0, len(order), template_file.CHUNK):
                part = order[start : start + template_file.CHUNK]
                yield template_file.pack(numbers[part], owners[part], rows[part])

        template_file.append(path, int(meta["rows"] or 0), parts())
    entries = ((what.owners[i], sources[i], what.numbers[i]) for i in what.written)
    db.executemany("INSERT INTO templates VALUES (?, ?, ?, ?)", ((*entry, seal(*entry)) for entry in entries))
    db.executemany("DELETE FROM templates WHERE identity = ? AND source = ? AND number = ?", what.replaced)
    db.executemany("INSERT INTO removed VALUES (?, 0)", [(number,) for _, _, number in what.replaced])
    changes = Counter(what.owners[i] for i in what.written)
    changes.subtract(owner for owner, _, _ in what.replaced)
    for owner, more in changes.items():
        name, count = db.execute("SELECT name, templates FROM identities WHERE id = ?", (owner,)).fetchone()
        values = (count + more, seal(owner, name, count + more), owner)
        db.execute("UPDATE identities SET templates = ?, checksum = ? WHERE id = ?", values)


def wipe_removed(db: sqlite3.Connection, meta: Meta, path: Path) -> None:
    """Overwrite the features of removed templates, also those that a killed process did not come to."""
    numbers = [number for (number,) in db.execute("SELECT number FROM removed WHERE NOT wiped")]
    if numbers:
        dim = int(meta.get("dim") or 0)
        records = template_file.mapped(path, dim, int(meta["rows"] or 0))
        slots = (template_file.slot_of(records, number) for number in numbers)
        template_file.wipe(path, dim, [slot for slot in slots if slot is not None])
        db.execute("UPDATE removed SET wiped = 1")


def compacted(db: sqlite3.Connection, meta: Mapping[str, str | None], path: Path, new: Path) -> int | None:
    """If most records are removed ones, write the others to ``new``; how many they are, None if nothing was done."""
    rows = int(meta["rows"] or 0)
    (removed,) = db.execute("SELECT COUNT(*) FROM removed").fetchone()
    if removed < FEW or 2 * removed < rows:
        return None
    records = template_file.mapped(path, int(meta.get("dim") or 0), rows)
    gone = np.fromiter((number for (number,) in db.execute("SELECT number FROM removed")), np.int64, removed)
    with suppress(FileNotFoundError):
        new.unlink()
    kept = template_file.append(new, 0, template_file.chunks(records, ~np.isin(records["number"], gone)))
    db.execute("DELETE FROM removed")
    return kept


def remove_others(path: Path) -> None:
    """Delete the features' files of other generations: those before a compaction, or of one that was killed."""
    prefix = path.name.rpartition("-")[0]
    for other in path.absolute().parent.iterdir():
        if (
            other.name.rpartition("-")[0] == prefix
            and other.name != path.name
            and other.name[len(prefix) + 1 :].isdigit()
        ):
            with suppress(OSError):  # where a mapped file cannot be deleted, the next change tries again
                other.unlink()


def _known(db: sqlite3.Connection, owner: int, source: str) -> tuple[int, str, int] | None:
    query = "SELECT number, source, checksum FROM templates WHERE identity = ? AND source = ?"
    row = db.execute(query, (owner, source)).fetchone()
    return None if row is None else (int(row[0]), str(row[1]), int(row[2]))
