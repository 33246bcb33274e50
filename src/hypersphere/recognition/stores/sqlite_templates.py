"""The templates of an SQLite gallery: checked reading, enrollment, removal and compaction.

All functions run inside a transaction of the caller. New records are on disk before the database counts them.
"""

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from . import template_file
from .sqlite_database import row_checksum
from .store import DamagedGalleryError, Settings
from .template_file import TemplateFile

EQUALITY_TOLERANCE = 1e-5  # relative to the length: the same picture embedded twice differs by rounding only
MIN_REMOVED_FOR_COMPACTION = 1024  # removed records


class WritePlan(NamedTuple):
    """The changes of one enrollment.

    Attributes:
        owners: The identity of each row.
        numbers: The template number of each row.
        written: The indices of the rows to be written.
        replaced: Identity, source and number of the templates that are replaced.
    """

    owners: list[int]
    numbers: list[int]
    written: list[int]
    replaced: list[tuple[int, str, int]]


def read_templates(
    db: sqlite3.Connection, path: TemplateFile, meta: Settings, name: str
) -> Float[Tensor, "t d"] | None:
    """Return the templates of an identity, None if the name is unknown.

    Raises:
        DamagedGalleryError: If a row does not match its checksum, or a template is missing.
    """
    row = db.execute("SELECT id, templates, checksum FROM identities WHERE name = ?", (name,)).fetchone()
    if row is None:
        return None
    owner, count, checksum = row
    query = "SELECT number, source, checksum FROM templates WHERE identity = ?"
    rows = db.execute(query, (owner,)).fetchall()
    if checksum != row_checksum(owner, name, count) or len({number for number, _, _ in rows}) != count:
        raise DamagedGalleryError(f"the gallery is damaged: templates of {name!r} are missing")
    return read_features(path, meta, owner, rows)


def read_features(
    path: TemplateFile, meta: Settings, owner: int, rows: Sequence[tuple[int, str, int]]
) -> Float[Tensor, "t d"]:
    """Return the features of templates ``(number, source, checksum)`` of one identity, in the order of their numbers."""
    records = template_file.map_records(path, int(meta.get("dim") or 0), int(meta["rows"] or 0))
    slots = [template_file.find_slot(records, number) for number, _, _ in sorted(rows)]
    present = np.array([slot for slot in slots if slot is not None], dtype=np.int64)
    own = np.ascontiguousarray(records[present])
    intact = all(checksum == row_checksum(owner, source, number) for number, source, checksum in rows)
    if len(own) < len(rows) or not intact or (own["identity"] != owner).any() or len(template_file.find_damaged(own)):
        raise DamagedGalleryError(f"{path} is damaged: a template does not match its checksum")
    return torch.from_numpy(template_file.read_features(own, int(meta.get("dim") or 0), path.cipher).copy())


def find_owner(db: sqlite3.Connection, name: str) -> int | None:
    """Return the identity of a name, None if there is none."""
    row = db.execute("SELECT id FROM identities WHERE name = ?", (name,)).fetchone()
    return None if row is None else int(row[0])


def make_owners(db: sqlite3.Connection, names: Collection[str]) -> tuple[dict[str, int], set[int]]:
    """Return the identity of each name, and the new identities. Missing identities are inserted."""
    owners: dict[str, int] = {}
    new: set[int] = set()
    for name in dict.fromkeys(names):
        owner = find_owner(db, name)
        if owner is None:
            owner = int(db.execute("INSERT INTO identities VALUES (NULL, ?, 0, 0)", (name,)).lastrowid or 0)
            new.add(owner)
        owners[name] = owner
    return owners, new


def plan_writes(
    db: sqlite3.Connection,
    meta: Settings,
    path: TemplateFile,
    rows: Float[np.ndarray, "n d"],
    owners: list[int],
    new_owners: Collection[int],
    sources: Sequence[str],
) -> WritePlan:
    """Decide which rows are written. A row is skipped if its identity already has this source with an equal feature."""
    last = {(owner, source): i for i, (owner, source) in enumerate(zip(owners, sources, strict=True)) if source}
    numbers, written, replaced = [0] * len(rows), [], []
    number = int(meta["next"] or 1)
    for i, (owner, source) in enumerate(zip(owners, sources, strict=True)):
        if source and last[owner, source] != i:
            continue  # a later row has the same source, and the last one counts
        known = _find_template(db, owner, source) if source and owner not in new_owners else None
        if known is not None:
            stored = read_features(path, meta, owner, [known])[0].numpy()
            if np.abs(stored - rows[i]).max() <= EQUALITY_TOLERANCE * np.linalg.norm(rows[i]):
                numbers[i] = known[0]
                continue
            replaced.append((owner, source, known[0]))
        numbers[i] = number
        number += 1
        written.append(i)
    numbers = [n or numbers[last[owners[i], sources[i]]] for i, n in enumerate(numbers)]
    return WritePlan(owners, numbers, written, replaced)


def write_templates(
    db: sqlite3.Connection,
    meta: Settings,
    path: TemplateFile,
    rows: Float[np.ndarray, "n d"],
    sources: Sequence[str],
    plan: WritePlan,
) -> None:
    """Append the records and bring them to disk, then insert the rows of the plan and delete the replaced ones."""
    if plan.written:
        numbers, owners = (np.array(column, dtype=np.int64) for column in (plan.numbers, plan.owners))
        order = np.array(plan.written, dtype=np.int64)

        def pack_chunks() -> Iterator[np.ndarray]:
            for start in range(0, len(order), template_file.CHUNK):
                part = order[start : start + template_file.CHUNK]
                yield template_file.pack(numbers[part], owners[part], rows[part], path.cipher)

        template_file.append(path, int(meta["rows"] or 0), pack_chunks())
    entries = ((plan.owners[i], sources[i], plan.numbers[i]) for i in plan.written)
    db.executemany("INSERT INTO templates VALUES (?, ?, ?, ?)", ((*entry, row_checksum(*entry)) for entry in entries))
    db.executemany("DELETE FROM templates WHERE identity = ? AND source = ? AND number = ?", plan.replaced)
    db.executemany("INSERT INTO removed VALUES (?, 0)", [(number,) for _, _, number in plan.replaced])
    changes = Counter(plan.owners[i] for i in plan.written)
    changes.subtract(owner for owner, _, _ in plan.replaced)
    for owner, change in changes.items():
        name, count = db.execute("SELECT name, templates FROM identities WHERE id = ?", (owner,)).fetchone()
        values = (count + change, row_checksum(owner, name, count + change), owner)
        db.execute("UPDATE identities SET templates = ?, checksum = ? WHERE id = ?", values)


def wipe_removed(db: sqlite3.Connection, meta: Settings, path: TemplateFile) -> None:
    """Overwrite the features of removed templates, including those that a killed process left."""
    numbers = [number for (number,) in db.execute("SELECT number FROM removed WHERE NOT wiped")]
    if numbers:
        dim = int(meta.get("dim") or 0)
        records = template_file.map_records(path, dim, int(meta["rows"] or 0))
        slots = (template_file.find_slot(records, number) for number in numbers)
        template_file.wipe(path, dim, [slot for slot in slots if slot is not None])
        db.execute("UPDATE removed SET wiped = 1")


def compact(db: sqlite3.Connection, meta: Settings, path: TemplateFile, new: TemplateFile) -> int | None:
    """Write the valid records to ``new`` if most are removed; return their number, None if nothing was written."""
    rows = int(meta["rows"] or 0)
    (removed,) = db.execute("SELECT COUNT(*) FROM removed").fetchone()
    if removed < MIN_REMOVED_FOR_COMPACTION or 2 * removed < rows:
        return None
    records = template_file.map_records(path, int(meta.get("dim") or 0), rows)
    valid = ~np.isin(records["number"], read_removed(db, removed))
    with suppress(FileNotFoundError):
        new.path.unlink()
    count = template_file.append(new, 0, template_file.split_records(records, valid))
    db.execute("DELETE FROM removed")
    return count


def read_removed(db: sqlite3.Connection, count: int) -> np.ndarray:
    """Return the numbers of all ``count`` removed templates."""
    return np.fromiter((number for (number,) in db.execute("SELECT number FROM removed")), np.int64, count)


def remove_other_generations(path: Path) -> None:
    """Delete the files of features of other generations, which a compaction replaced or left unfinished."""
    prefix = path.name.rpartition("-")[0]
    for other in path.absolute().parent.iterdir():
        if (
            other.name.rpartition("-")[0] == prefix
            and other.name != path.name
            and other.name[len(prefix) + 1 :].isdigit()
        ):
            with suppress(OSError):  # where a mapped file cannot be deleted, the next change tries again
                other.unlink()


def _find_template(db: sqlite3.Connection, owner: int, source: str) -> tuple[int, str, int] | None:
    query = "SELECT number, source, checksum FROM templates WHERE identity = ? AND source = ?"
    row = db.execute(query, (owner, source)).fetchone()
    return None if row is None else (int(row[0]), str(row[1]), int(row[2]))
