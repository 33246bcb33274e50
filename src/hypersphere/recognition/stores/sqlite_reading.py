"""Reading an SQLite gallery: its features as they lie in the file, the nearest identities, the templates of one."""

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..search import DenseRows, exact_search
from . import template_file
from .sqlite_database import seal
from .store import DamagedGalleryError

Meta = Mapping[str, str | None]


class Snapshot(NamedTuple):
    """The records that count at one revision; ``lengths`` of the features, and ``counts``, None if none was removed."""

    revision: int
    generation: int
    people: int
    records: np.ndarray
    features: Float[Tensor, "n d"]
    lengths: Float[Tensor, "n"]
    removed: int
    counts: Bool[Tensor, "n"] | None


def snapshot(db: sqlite3.Connection, meta: Meta, path: Path, before: Snapshot | None) -> Snapshot:
    """Map the features at this revision; of those that ``before`` knows nothing is read again.

    Raises:
        DamagedGalleryError: When a new record does not fit its checksum.
    """
    revision, generation, rows = (int(meta[key] or 0) for key in ("revision", "generation", "rows"))
    if before is not None and before.revision == revision:
        return before
    records = template_file.mapped(path, int(meta.get("dim") or 0), rows)
    known = before if before is not None and before.generation == generation else None
    first = 0 if known is None else len(known.records)
    (removed,) = db.execute("SELECT COUNT(*) FROM removed").fetchone()
    counts = _counts(db, records, removed, known)
    bad = template_file.damaged(records[first:]) + first
    if len(bad) and (counts is None or counts[torch.from_numpy(bad)].any()):
        raise DamagedGalleryError(f"{path} is damaged: {len(bad)} templates do not fit their checksums")
    features = torch.from_numpy(records["feature"])
    new = torch.cat([torch.linalg.vector_norm(part, dim=1) for part in features[first:].split(template_file.CHUNK)])
    lengths = torch.cat([known.lengths, new]) if known is not None else new
    if counts is not None:
        lengths = lengths.where(counts, 1.0)  # removed features are zeros, which have no direction to divide by
    return Snapshot(revision, generation, int(meta["people"] or 0), records, features, lengths, removed, counts)


def nearest_identities(at: Snapshot, probes: Float[Tensor, "p d"], k: int) -> list[list[tuple[int, float]]]:
    """Return the ``k`` best identities of each probe with the cosine of their best template, best first.

    The best identities in their order are those of the best templates in theirs, so the search goes only as deep as
    it must to meet ``k`` different ones.
    """
    alive = len(at.records) - at.removed
    wanted = min(k, at.people)
    deep, todo = min(k, alive), list(range(len(probes)))
    found: list[list[tuple[int, float]]] = [[] for _ in todo]
    while todo and deep:
        scores, slots = exact_search(probes[todo], DenseRows(at.features, lengths=at.lengths, counts=at.counts), deep)
        owners = at.records["identity"][slots.numpy()]
        for i, row_owners, row_scores in zip(todo, owners.tolist(), scores.tolist(), strict=True):
            first: dict[int, float] = {}
            for owner, score in zip(row_owners, row_scores, strict=True):
                first.setdefault(owner, score)
            found[i] = list(first.items())[:k]
        todo = [i for i in todo if len(found[i]) < wanted] if deep < alive else []
        deep = min(alive, 4 * deep)
    return found


def read_features(path: Path, meta: Meta, owner: int, rows: Sequence[tuple[int, str, int]]) -> Float[Tensor, "t d"]:
    """Return the features of templates ``(number, source, checksum)`` of one identity, in the order of their numbers."""
    records = template_file.mapped(path, int(meta.get("dim") or 0), int(meta["rows"] or 0))
    slots = [template_file.slot_of(records, number) for number, _, _ in sorted(rows)]
    present = np.array([slot for slot in slots if slot is not None], dtype=np.int64)
    own = np.ascontiguousarray(records[present])
    sealed = all(checksum == seal(owner, source, number) for number, source, checksum in rows)
    if len(own) < len(rows) or not sealed or (own["identity"] != owner).any() or len(template_file.damaged(own)):
        raise DamagedGalleryError(f"{path} is damaged: a template does not fit its checksum")
    return torch.from_numpy(own["feature"].copy())


def features_of(db: sqlite3.Connection, path: Path, meta: Meta, name: str) -> Float[Tensor, "t d"] | None:
    """Return all templates of a name, after comparing their number with what the identity says, None if it is unknown."""
    row = db.execute("SELECT id, templates, checksum FROM identities WHERE name = ?", (name,)).fetchone()
    if row is None:
        return None
    owner, count, checksum = row
    query = "SELECT number, source, checksum FROM templates WHERE identity = ?"
    rows = db.execute(query, (owner,)).fetchall()
    if checksum != seal(owner, name, count) or len({number for number, _, _ in rows}) != count:
        raise DamagedGalleryError(f"the gallery is damaged: templates of {name!r} are missing")
    return read_features(path, meta, owner, rows)


def names_of(db: sqlite3.Connection, owners: Collection[int]) -> dict[int, str]:
    """Return the names of identities, compared with their checksums."""
    names = {}
    for owner in owners:
        row = db.execute("SELECT name, templates, checksum FROM identities WHERE id = ?", (owner,)).fetchone()
        if row is None or row[2] != seal(owner, *row[:2]):
            raise DamagedGalleryError("the gallery is damaged: a name is missing or does not fit its checksum")
        names[owner] = str(row[0])
    return names


def _counts(
    db: sqlite3.Connection, records: np.ndarray, removed: int, known: Snapshot | None
) -> Bool[Tensor, "n"] | None:
    """Which records count; those that were removed before stay so, new ones are looked up only if there are any."""
    if not removed:
        return None
    if known is not None and known.removed == removed and known.counts is not None:
        new = torch.ones(len(records) - len(known.records), dtype=torch.bool)
        return torch.cat([known.counts, new])
    gone = np.fromiter((number for (number,) in db.execute("SELECT number FROM removed")), np.int64, removed)
    return torch.from_numpy(~np.isin(records["number"], gone))
