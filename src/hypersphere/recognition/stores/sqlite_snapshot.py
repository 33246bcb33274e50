"""Snapshots of an SQLite gallery: the templates of one revision, memory-mapped, and exact search among them."""

import sqlite3
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .._search import DenseRows, exact_search
from . import template_file
from .sqlite_templates import read_removed
from .store import DamagedGalleryError, Settings
from .template_file import TemplateFile


class Snapshot(NamedTuple):
    """The templates of one revision.

    Attributes:
        revision: The revision of the gallery.
        generation: The generation of the file of features.
        people: The number of identities.
        records: All records of the file, removed ones included.
        features: The feature of each record.
        lengths: The length of each feature; 1 for removed records.
        removed: The number of removed records.
        valid: False for removed records; None if no record was removed.
    """

    revision: int
    generation: int
    people: int
    records: np.ndarray
    features: Float[Tensor, "n d"]
    lengths: Float[Tensor, "n"]
    removed: int
    valid: Bool[Tensor, "n"] | None


def take_snapshot(db: sqlite3.Connection, meta: Settings, path: TemplateFile, previous: Snapshot | None) -> Snapshot:
    """Return the templates of this revision. Only records that ``previous`` does not contain are read.

    Raises:
        DamagedGalleryError: If a new record does not match its checksum.
    """
    revision, generation, rows = (int(meta[key] or 0) for key in ("revision", "generation", "rows"))
    if previous is not None and previous.revision == revision:
        return previous
    records = template_file.map_records(path, int(meta.get("dim") or 0), rows)
    known = previous if previous is not None and previous.generation == generation else None
    first = 0 if known is None else len(known.records)
    (removed,) = db.execute("SELECT COUNT(*) FROM removed").fetchone()
    valid = _find_valid(db, records, removed, known)
    damaged = template_file.find_damaged(records[first:]) + first
    if len(damaged) and (valid is None or valid[torch.from_numpy(damaged)].any()):
        raise DamagedGalleryError(f"{path} is damaged: {len(damaged)} templates do not match their checksums")
    features = _map_features(path, records, known, valid)
    new = torch.cat([torch.linalg.vector_norm(part, dim=1) for part in features[first:].split(template_file.CHUNK)])
    lengths = torch.cat([known.lengths, new]) if known is not None else new
    if valid is not None:
        lengths = lengths.where(valid, 1.0)  # removed features are zeros, and search divides by the lengths
    return Snapshot(revision, generation, int(meta["people"] or 0), records, features, lengths, removed, valid)


def find_nearest_identities(snapshot: Snapshot, probes: Float[Tensor, "p d"], k: int) -> list[list[tuple[int, float]]]:
    """Return the ``k`` best identities of each probe with the cosine of their best template, best first.

    The order of identities is the order of their best templates. Therefore the search starts with the ``k`` best
    templates, and goes four times deeper for probes whose templates belong to fewer than ``k`` identities.
    """
    valid = len(snapshot.records) - snapshot.removed
    target = min(k, snapshot.people)
    depth, pending = min(k, valid), list(range(len(probes)))
    best: list[list[tuple[int, float]]] = [[] for _ in pending]
    rows = DenseRows(snapshot.features, lengths=snapshot.lengths, valid=snapshot.valid)
    while pending and depth:
        scores, slots = exact_search(probes[pending], rows, depth)
        owners = snapshot.records["identity"][slots.numpy()]
        for i, row_owners, row_scores in zip(pending, owners.tolist(), scores.tolist(), strict=True):
            first: dict[int, float] = {}
            for owner, score in zip(row_owners, row_scores, strict=True):
                first.setdefault(owner, score)
            best[i] = list(first.items())[:k]
        pending = [i for i in pending if len(best[i]) < target] if depth < valid else []
        depth = min(valid, 4 * depth)
    return best


def _map_features(
    path: TemplateFile, records: np.ndarray, known: Snapshot | None, valid: Tensor | None
) -> Float[Tensor, "n d"]:
    """Return the features of all records: memory-mapped, or decrypted. Only records not in ``known`` are decrypted."""
    if path.cipher is None:
        return torch.from_numpy(records["feature"])
    first = 0 if known is None else len(known.records)
    dim = (records.dtype["feature"].itemsize - template_file.SEAL_BYTES) // 4
    decrypted = template_file.read_features(
        records[first:], dim, path.cipher, None if valid is None else valid[first:].numpy()
    )
    features = torch.from_numpy(decrypted)
    if known is None:
        return features
    both = torch.cat([known.features, features])
    return both if valid is None else both.masked_fill_(~valid[:, None], 0.0)  # clear removed features from memory


def _find_valid(
    db: sqlite3.Connection, records: np.ndarray, removed: int, known: Snapshot | None
) -> Bool[Tensor, "n"] | None:
    """Return which records were not removed. The database is read only if the number of removed records changed."""
    if not removed:
        return None
    if known is not None and known.removed == removed and known.valid is not None:
        new = torch.ones(len(records) - len(known.records), dtype=torch.bool)
        return torch.cat([known.valid, new])
    return torch.from_numpy(~np.isin(records["number"], read_removed(db, removed)))
