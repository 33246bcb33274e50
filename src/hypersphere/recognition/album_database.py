"""The SQLite database of an album: tables, transactions, and a history of steps that can be undone."""

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .stores.sqlite_database import LOCK_SECONDS, transaction

VERSION = 1  # PRAGMA user_version; raised when the tables change
APPLICATION = 0x68797061  # PRAGMA application_id, "hypa"

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE photographs (id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, state TEXT, problem TEXT);
CREATE TABLE groups (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE, confirmed INTEGER NOT NULL DEFAULT 0);
CREATE TABLE samples (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  photograph INTEGER,
  box TEXT,
  feature BLOB NOT NULL,
  member INTEGER,
  confirmed INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX samples_of_a_group ON samples(member);
CREATE INDEX samples_of_a_photograph ON samples(photograph);
CREATE TABLE rejections (sample INTEGER NOT NULL, identity INTEGER NOT NULL, PRIMARY KEY (sample, identity)) WITHOUT ROWID;
CREATE TABLE history (id INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, action TEXT NOT NULL, undone INTEGER NOT NULL DEFAULT 0);
CREATE TABLE before (step INTEGER NOT NULL, kind TEXT NOT NULL, a INTEGER, b, c);
CREATE INDEX before_a_step ON before(step)
"""


class Change(NamedTuple):
    """A kind of change that can be undone. A trigger records the old values in the table ``before``."""

    event: str
    """the event of the trigger"""
    values: str
    """three values to record: columns a, b and c of ``before``"""
    inverse: str
    """the statement that undoes the change, with the recorded values as parameters 1 to 3"""


CHANGES = {
    "sample": Change(
        "UPDATE OF member, confirmed ON samples WHEN old.member IS NOT new.member OR old.confirmed <> new.confirmed",
        "old.id, old.member, old.confirmed",
        "UPDATE samples SET member = ?2, confirmed = ?3 WHERE id = ?1",
    ),
    "group made": Change("INSERT ON groups", "new.id, NULL, NULL", "DELETE FROM groups WHERE id = ?1"),
    "group": Change(
        "UPDATE ON groups",
        "old.id, old.name, old.confirmed",
        "UPDATE groups SET name = ?2, confirmed = ?3 WHERE id = ?1",
    ),
    "group gone": Change(
        "DELETE ON groups",
        "old.id, old.name, old.confirmed",
        "INSERT INTO groups (id, name, confirmed) VALUES (?1, ?2, ?3)",
    ),
    "rejection made": Change(
        "INSERT ON rejections",
        "new.sample, new.identity, NULL",
        "DELETE FROM rejections WHERE sample = ?1 AND identity = ?2",
    ),
    "rejection gone": Change(
        "DELETE ON rejections", "old.sample, old.identity, NULL", "INSERT OR IGNORE INTO rejections VALUES (?1, ?2)"
    ),
}


def connect(path: Path, create: bool) -> sqlite3.Connection:
    """Open the database of an album, or create one that only its owner can read.

    Raises:
        ValueError: If there is no album at ``path``, or the file is not an album of this version.
    """
    if not path.exists() and not create:
        raise ValueError(f"there is no album at {path}")
    try:
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # only the owner may read the faces
        db = sqlite3.connect(path, timeout=LOCK_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            _prepare(db, path, create)
        except BaseException:
            db.close()
            raise
    except (sqlite3.Error, OSError) as error:
        raise ValueError(f"{path} cannot be opened as an album: {getattr(error, 'strerror', None) or error}") from error
    return db


@contextlib.contextmanager
def run_step(db: sqlite3.Connection, action: str) -> Iterator[None]:
    """Run one transaction with one entry in the history."""
    with transaction(db, kind="album"):
        db.execute("INSERT INTO history (at, action) VALUES (?, ?)", (_now(), action))
        yield


def undo_last_step(db: sqlite3.Connection) -> str | None:
    """Undo the last step that changed something and was not undone yet; return its action, None if there is none."""
    with transaction(db, kind="album"):
        last = db.execute(
            "SELECT id, action FROM history h WHERE NOT undone AND EXISTS "
            "(SELECT 1 FROM before b WHERE b.step = h.id) ORDER BY id DESC LIMIT 1"
        ).fetchone()
        if last is None:
            return None
        step, action = last
        rows = db.execute("SELECT kind, a, b, c FROM before WHERE step = ? ORDER BY rowid DESC", (step,)).fetchall()
        # The triggers also record the inverse statements, as changes of a new step. These records are deleted, so that
        # an undo is never undone.
        undoing = db.execute(
            "INSERT INTO history (at, action, undone) VALUES (?, ?, 1)", (_now(), f"undo: {action}")
        ).lastrowid
        for kind, *values in rows:
            inverse = CHANGES[kind].inverse
            db.execute(inverse, values[: inverse.count("?")])  # SQLite refuses values without a parameter
        db.execute("UPDATE history SET undone = 1 WHERE id = ?", (step,))
        db.execute("DELETE FROM before WHERE step IN (?, ?)", (step, undoing))
    return str(action)


def _prepare(db: sqlite3.Connection, path: Path, create: bool) -> None:
    """Check that the database is an album of this version, and create the tables if it is empty."""
    (application,), (version,) = (
        db.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
    )
    (tables,) = db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    if tables and application != APPLICATION:
        raise ValueError(f"{path} is a database, but not an album")
    if tables and version != VERSION:
        raise ValueError(f"{path} is an album of version {version}; this release reads version {VERSION}")
    if not tables and not create:
        raise ValueError(f"there is no album at {path}: the file is empty")
    db.execute("PRAGMA journal_mode = WAL")  # others can read during a write
    db.execute("PRAGMA synchronous = FULL")  # committed changes survive a power failure
    db.execute("PRAGMA secure_delete = ON")
    if not tables:
        with transaction(db, kind="album"):  # one transaction, so that an incomplete file is not opened as an album
            if not db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
                for statement in TABLES.split(";"):
                    db.execute(statement)
                for kind, change in CHANGES.items():
                    db.execute(
                        f"CREATE TRIGGER record_{kind.replace(' ', '_')} AFTER {change.event} BEGIN INSERT INTO before "
                        f"VALUES ((SELECT MAX(id) FROM history), '{kind}', {change.values}); END"
                    )
                db.execute(f"PRAGMA application_id = {APPLICATION}")
                db.execute(f"PRAGMA user_version = {VERSION}")


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")
