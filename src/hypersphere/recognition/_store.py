"""The file of a gallery: an SQLite database with write-ahead log, and features as little-endian float32."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

VERSION = 1  # PRAGMA user_version; raised when the tables change
APPLICATION = 0x68797073  # PRAGMA application_id, "hyps"

SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE IF NOT EXISTS identities (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS templates (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  identity INTEGER NOT NULL REFERENCES identities(id),
  source TEXT NOT NULL,
  feature BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS templates_of_identity ON templates(identity);
"""


def connect(path: Path, create: bool, fingerprint: str | None) -> sqlite3.Connection:
    """Open a gallery file or make one; another database, and one of a later version, are refused untouched."""
    if not path.exists() and not create:
        raise ValueError(f"there is no gallery at {path}")
    try:
        db = sqlite3.connect(path, timeout=30, isolation_level=None)  # 30 s for another writer to finish
        try:
            _prepare(db, path, fingerprint)
        except BaseException:
            db.close()
            raise
    except sqlite3.Error as error:
        raise ValueError(f"{path} cannot be opened as a gallery: {error}") from error
    return db


def encode(feature: Float[Tensor, "d"]) -> bytes:
    """A feature as little-endian float32, whatever the machine."""
    return feature.numpy().astype("<f4").tobytes()


def decode(blobs: Sequence[bytes], dim: int) -> Float[Tensor, "n d"]:
    """Features of all rows at once."""
    return torch.from_numpy(np.frombuffer(b"".join(blobs), dtype="<f4").astype(np.float32).reshape(len(blobs), dim))


def _prepare(db: sqlite3.Connection, path: Path, fingerprint: str | None) -> None:
    (application,), (version,) = (
        db.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
    )
    (tables,) = db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    if application != APPLICATION and tables:
        raise ValueError(f"{path} is a database, but not a gallery")
    if version > VERSION:
        raise ValueError(f"{path} is a gallery of version {version}; this release reads up to version {VERSION}")
    db.execute("PRAGMA journal_mode = WAL")  # readers go on while one writes
    db.execute("PRAGMA synchronous = FULL")  # what is acknowledged is on disk, also after a power cut
    if not tables:
        # One transaction: a half-made file is never taken for a gallery, and of two that make it the second finds it made.
        db.execute("BEGIN IMMEDIATE")
        for statement in SCHEMA.split(";"):
            db.execute(statement)
        db.execute(
            "INSERT OR IGNORE INTO meta(key, value) VALUES ('revision', '0'), ('fingerprint', ?)", (fingerprint,)
        )
        db.execute(f"PRAGMA application_id = {APPLICATION}")
        db.execute(f"PRAGMA user_version = {VERSION}")
        db.execute("COMMIT")
