"""The database of an SQLite gallery: creation, connections, transactions and the checksums of rows."""

import os
import sqlite3
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from .store import DamagedGalleryError
from .template_file import sync_folder

VERSION = 4  # PRAGMA user_version; raised when the tables change
LOCK_SECONDS = 30  # how long a writer waits for another one
INITIAL_SETTINGS = {
    "revision": 0,
    "generation": 0,
    "rows": 0,
    "next": 1,
    "people": 0,
    "counterexamples": 0,
}
APPLICATION_ID = 0x68797073  # PRAGMA application_id, "hyps"

SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT, checksum INTEGER NOT NULL);
CREATE TABLE identities (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL UNIQUE,
  templates INTEGER NOT NULL,
  checksum INTEGER NOT NULL
);
CREATE TABLE templates (
  identity INTEGER NOT NULL,
  source TEXT NOT NULL,
  number INTEGER NOT NULL,
  checksum INTEGER NOT NULL,
  PRIMARY KEY (identity, source, number)
) WITHOUT ROWID;
CREATE TABLE counterexamples (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  identity INTEGER NOT NULL,
  source TEXT NOT NULL,
  feature BLOB NOT NULL,
  checksum INTEGER NOT NULL
);
CREATE INDEX counterexamples_of_identity ON counterexamples(identity);
CREATE TABLE removed (number INTEGER PRIMARY KEY, wiped INTEGER NOT NULL);
CREATE INDEX removed_and_not_wiped ON removed(number) WHERE NOT wiped
"""


def connect(path: Path, *, create: bool, readonly: bool) -> sqlite3.Connection:
    """Open a gallery's database, or create one that only its owner can read.

    Databases of other programs or other versions are refused and not changed. With ``readonly``, the database is not
    changed; if its folder cannot be written to, no log is created beside it either.
    """
    if not path.exists() and not create:
        raise ValueError(f"there is no gallery at {path}")
    is_new = create and not path.exists()
    try:
        if is_new:
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        db = sqlite3.connect(
            _make_uri(path, readonly), timeout=LOCK_SECONDS, isolation_level=None, uri=True, check_same_thread=False
        )
        try:
            _prepare(db, path, create, readonly)
        except BaseException:
            if is_new and not _has_tables(db):  # creation failed, such as on a full disk: delete the empty file
                path.unlink(missing_ok=True)
            db.close()
            raise
    except (sqlite3.Error, OSError) as error:
        raise ValueError(
            f"{path} cannot be opened as a gallery: {getattr(error, 'strerror', None) or error}"
        ) from error
    return db


def is_writable(path: Path) -> bool:
    """Return whether the file and its folder can be written to. SQLite writes its log into the folder."""
    return os.access(path, os.W_OK) and os.access(path.absolute().parent, os.W_OK)


def row_checksum(*values: object) -> int:
    """Return the checksum of a row."""
    return zlib.crc32("\0".join(map(str, values)).encode("utf-8", "surrogatepass"))


def read_meta(db: sqlite3.Connection) -> dict[str, str | None]:
    """Return all settings, after comparing them with their checksums."""
    rows = db.execute("SELECT key, value, checksum FROM meta").fetchall()
    for key, value, checksum in rows:
        if checksum != row_checksum(key, value):
            raise DamagedGalleryError(f"the gallery is damaged: its setting {key!r} does not match its checksum")
    missing = {*INITIAL_SETTINGS, "gallery"} - {row[0] for row in rows}
    if missing:
        raise DamagedGalleryError(f"the gallery is damaged: its settings {sorted(missing)} are missing")
    return {key: value for key, value, _ in rows}


def write_meta(db: sqlite3.Connection, key: str, value: object) -> None:
    """Store a setting as text, with its checksum."""
    text = None if value is None else str(value)
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?, ?)", (key, text, row_checksum(key, text)))


@contextmanager
def transaction(db: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE", kind: str = "gallery") -> Iterator[None]:
    """Run a transaction, and roll it back if an exception is raised. An SQLite error becomes an ``OSError``.

    Args:
        db: The database.
        begin: ``BEGIN IMMEDIATE`` takes the write lock at once, ``BEGIN`` only reads a consistent snapshot.
        kind: The content of the database, for the message.
    """
    try:
        db.execute(begin)
        try:
            yield
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")
    except sqlite3.Error as error:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise OSError(f"the {kind} cannot be used: {error}") from error


def _make_uri(path: Path, readonly: bool) -> str:
    base = f"file:{quote(str(path.absolute()))}"
    if not readonly:
        return f"{base}?mode=rw"
    log = path.with_name(path.name + "-wal")
    sealed = not os.access(path.absolute().parent, os.W_OK) and not (log.exists() and log.stat().st_size)
    return f"{base}?mode=ro" + ("&immutable=1" if sealed else "")


def _has_tables(db: sqlite3.Connection) -> bool:
    try:
        return bool(db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0])
    except sqlite3.Error:
        return False


def _prepare(db: sqlite3.Connection, path: Path, create: bool, readonly: bool) -> None:
    db.execute("BEGIN")  # one snapshot of all three values, because another process may be creating the gallery
    try:
        (application,), (version,) = (
            db.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
        )
        (tables,) = db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
    if application != APPLICATION_ID and tables:
        raise ValueError(f"{path} is a database, but not a gallery")
    if not tables and not create:
        raise ValueError(f"there is no gallery at {path}: the file is empty")
    if version > VERSION:
        raise ValueError(f"{path} is a gallery of version {version}; this release reads up to version {VERSION}")
    if tables and version < VERSION:
        raise ValueError(
            f"{path} is a gallery of version {version}; this release reads version {VERSION}: enroll again"
        )
    if readonly:
        return
    db.execute("PRAGMA journal_mode = WAL")  # others can read during a write
    db.execute("PRAGMA synchronous = FULL")  # committed changes survive a power failure
    db.execute("PRAGMA secure_delete = ON")  # removed names are overwritten
    if not tables:
        # One transaction, so that an incomplete file is never opened as a gallery. If two processes create it, the second
        # one waits here and then finds the tables.
        with transaction(db, "BEGIN IMMEDIATE"):
            if not db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
                for statement in SCHEMA.split(";"):
                    db.execute(statement)
                for key, value in {**INITIAL_SETTINGS, "gallery": uuid.uuid4().hex}.items():
                    write_meta(db, key, value)
                db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                db.execute(f"PRAGMA user_version = {VERSION}")
        sync_folder(path.absolute().parent)
