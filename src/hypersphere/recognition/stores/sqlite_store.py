"""Identities in an SQLite database, their features in a memory-mapped file beside it."""

import glob
import os
import sqlite3
import tempfile
import threading
import uuid
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ...files import write_atomically
from . import template_file
from .sqlite_check import find_problems
from .sqlite_database import LOCK_SECONDS, connect, is_writable, read_meta, row_checksum, transaction, write_meta
from .sqlite_snapshot import Snapshot, find_nearest_identities, take_snapshot
from .sqlite_templates import (
    compact,
    find_owner,
    make_owners,
    plan_writes,
    read_templates,
    remove_other_generations,
    wipe_removed,
    write_templates,
)
from .store import Cipher, CounterExample, DamagedGalleryError, Recall, Settings, Templates
from .template_file import TemplateFile

T = TypeVar("T")
LOG_WAIT_MILLISECONDS = 500  # how long emptying the log waits for readers
NO_INDEX_MESSAGE = (
    "a gallery in a file is searched exactly: an approximate index (HNSW) is for galleries on a server, postgresql://…"
)


class SQLiteStore:
    """A :class:`Store` in the file ``location`` and a file ``….features-N`` beside it; ``":memory:"`` is deleted when closed.

    The database alone says how many records of the file of features are valid. A writer appends records, brings them to
    disk, and only then commits their number. If it is killed in between, the new records stay invalid.
    """

    def __init__(
        self,
        location: str | Path,
        fingerprint: str | None,
        *,
        create: bool = True,
        readonly: bool = False,
        protection: str | None = None,
    ):
        self._folder = tempfile.TemporaryDirectory() if str(location) == ":memory:" else None
        self.path = Path(self._folder.name, "gallery.db") if self._folder else Path(location)
        self.location = str(location)
        self.readonly = readonly or (self.path.exists() and not is_writable(self.path))
        create = create and not self.readonly
        self._db = connect(self.path, create=create, readonly=self.readonly)
        self._cache: Snapshot | None = None
        self._lock = threading.RLock()  # threads of one process take turns
        self.cipher: Cipher | None = None
        try:
            meta = dict(self.settings())
            if create and "fingerprint" not in meta:
                with transaction(self._db, "BEGIN IMMEDIATE"):
                    meta = read_meta(self._db)
                    if "fingerprint" not in meta:
                        write_meta(self._db, "fingerprint", fingerprint)
                        write_meta(self._db, "protection", protection)
                        meta.update(fingerprint=fingerprint, protection=protection)
            self.fingerprint, self.protection = meta.get("fingerprint"), meta.get("protection")
        except BaseException:
            self.close()
            raise

    def settings(self) -> Settings:
        """Return all settings, after comparing them with their checksums."""
        with self._read_transaction() as meta:
            return meta

    def put(self, values: Mapping[str, str | None]) -> None:
        """Store settings in one transaction."""
        with self._write_transaction() as meta:
            meta.update(values)

    def enrol(self, names: Sequence[str], features: Float[Tensor, "n d"], sources: Sequence[str]) -> list[int]:
        """Append templates. The same source of an identity keeps its template if it is equal, or gets the new one."""
        rows = features.numpy()
        with self._write_transaction() as meta:
            dim = meta.setdefault("dim", str(rows.shape[1]))
            if dim != str(rows.shape[1]):
                raise ValueError(f"features must have dimension {dim}, that of the gallery, got {rows.shape[1]}")
            owners, new_owners = make_owners(self._db, names)
            path = self._file(meta)
            plan = plan_writes(self._db, meta, path, rows, [owners[name] for name in names], new_owners, sources)
            write_templates(self._db, meta, path, rows, sources, plan)
            increases = {"rows": len(plan.written), "next": len(plan.written), "people": len(new_owners)}
            meta.update({key: str(int(meta[key] or 0) + increase) for key, increase in increases.items()})
            (must_clean,) = self._db.execute("SELECT EXISTS (SELECT 1 FROM removed WHERE NOT wiped)").fetchone()
        if must_clean:
            self._clean()  # this call replaced templates, or a killed process did not overwrite what it removed
        return plan.numbers

    def remove(self, name: str) -> int | None:
        """Remove an identity and overwrite its features with zeros."""
        with self._write_transaction() as meta:
            owner = find_owner(self._db, name)
            if owner is None:
                return None
            numbers = self._db.execute("SELECT number FROM templates WHERE identity = ?", (owner,)).fetchall()
            self._db.execute("DELETE FROM templates WHERE identity = ?", (owner,))
            self._db.execute("DELETE FROM identities WHERE id = ?", (owner,))
            examples = self._db.execute("DELETE FROM counterexamples WHERE identity = ?", (owner,)).rowcount
            meta["counterexamples"] = str(int(meta["counterexamples"] or 0) - examples)
            self._db.executemany("INSERT INTO removed VALUES (?, 0)", numbers)
            meta["people"] = str(int(meta["people"] or 0) - 1)
        self._clean()
        return len(numbers)

    def erase(self) -> list[str]:
        """Overwrite removed features, rewrite the database without free space, and empty the log.

        Raises:
            OSError: If another process is reading and the log cannot be emptied. The removal itself is on disk.
        """
        self._clean()
        with self._lock:
            try:
                self._db.execute("PRAGMA temp_store = MEMORY")  # no temporary file with names in it
                self._db.execute("VACUUM")  # pages keep stale copies of rows that moved, even with secure_delete
                busy, _, _ = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            except sqlite3.Error as error:
                raise OSError(f"the gallery {self.location} could not be rewritten: {error}") from error
        if busy:
            raise OSError(
                f"the write-ahead log of {self.location} still holds what was removed, because another process is reading "
                "the gallery: run the command again when it has finished"
            )
        return []

    def reject(self, name: str, features: Float[Tensor, "n d"], sources: Sequence[str]) -> bool:
        """Store counter-examples; the same source of an identity replaces the earlier one."""
        with self._write_transaction() as meta:
            owner = find_owner(self._db, name)
            if owner is None:
                return False
            count = int(meta["counterexamples"] or 0)
            for feature, source in zip(features, sources, strict=True):
                content = feature.numpy().astype("<f4").tobytes()
                if self.cipher is not None:
                    content = self.cipher.encrypt(content, _example_context(owner))
                if source:
                    query = "DELETE FROM counterexamples WHERE identity = ? AND source = ?"
                    count -= self._db.execute(query, (owner, source)).rowcount
                values = (owner, source, content, row_checksum(owner, source, content.hex()))
                self._db.execute(
                    "INSERT INTO counterexamples (identity, source, feature, checksum) VALUES (?, ?, ?, ?)", values
                )
                count += 1
            meta["counterexamples"] = str(count)
        return True

    def counterexamples(self) -> list[CounterExample]:
        """Return all counter-examples, after comparing them with their checksums."""
        with self._read_transaction():
            return read_counterexamples(self._db, self.cipher)

    def counts(self, after: str = "", limit: int | None = None) -> dict[str, int]:
        """Return the templates of identities, after comparing names with their checksums, and, if all are listed, totals."""
        query = (
            "SELECT id, name, templates, people.checksum, COUNT(DISTINCT number) FROM "
            "(SELECT * FROM identities WHERE name > ? ORDER BY name LIMIT ?) AS people LEFT JOIN templates "
            "ON identity = id GROUP BY id ORDER BY name"
        )
        with self._read_transaction() as meta:
            rows = self._db.execute(query, (after, -1 if limit is None else limit)).fetchall()
            (removed,) = self._db.execute("SELECT COUNT(*) FROM removed").fetchone()
        wrong = next((row[1] for row in rows if row[3] != row_checksum(*row[:3]) or row[4] != row[2]), None)
        if wrong is not None:
            raise DamagedGalleryError(
                f"the gallery is damaged: {wrong!r} or its templates do not match their checksums"
            )
        if not after and limit is None:
            totals = (len(rows), sum(row[2] for row in rows))
            if totals != (int(meta["people"] or 0), int(meta["rows"] or 0) - removed):
                raise DamagedGalleryError("the gallery is damaged: identities or templates are missing")
        return {row[1]: row[2] for row in rows}

    def features_of(self, name: str) -> Float[Tensor, "t d"] | None:
        """Return the templates of an identity, None if there is no such identity."""

        def read(meta: Settings) -> Tensor | None:
            return read_templates(self._db, self._file(meta), meta, name)

        return self._read_consistently(read)

    def templates(self) -> Templates:
        """Return all templates, after comparing them with their checksums."""

        def read(meta: Settings) -> Templates:
            snapshot = take_snapshot(self._db, meta, self._file(meta), None)
            rows = self._db.execute(
                "SELECT number, source, name, identity, t.checksum FROM templates t JOIN identities ON id = identity "
                "ORDER BY number"
            ).fetchall()
            slots = np.searchsorted(snapshot.records["number"], np.array([row[0] for row in rows], dtype=np.int64))
            intact = all(row[4] == row_checksum(row[3], row[1], row[0]) for row in rows)
            if len(rows) != len(snapshot.records) - snapshot.removed or not intact:
                raise DamagedGalleryError(
                    "the gallery is damaged: templates are missing or do not match their checksums"
                )
            names = read_names(self._db, {row[3] for row in rows})
            features = snapshot.features[torch.from_numpy(slots)].clone()
            return Templates(
                [names[row[3]] for row in rows], [row[0] for row in rows], [row[1] for row in rows], features
            )

        return self._read_consistently(read)

    def nearest(self, probes: Float[Tensor, "p d"], k: int, approximate: bool = False) -> list[list[tuple[str, float]]]:
        """Search exactly through the memory-mapped features."""
        if approximate:
            raise ValueError(NO_INDEX_MESSAGE)

        def find(meta: Settings) -> list[list[tuple[str, float]]]:
            self._cache = take_snapshot(self._db, meta, self._file(meta), self._cache)
            found = find_nearest_identities(self._cache, probes, k)
            names = read_names(self._db, {owner for row in found for owner, _ in row})
            return [[(names[owner], score) for owner, score in row] for row in found]

        return self._read_consistently(find)

    def build_index(self, k: int, probes: int) -> Recall:
        """Refuse: this store has no approximate index."""
        raise ValueError(NO_INDEX_MESSAGE)

    def check(self) -> list[str]:
        """Compare everything with its checksums and with each other.

        A transaction does not cover the file of features: another process may overwrite removed templates during the
        check. Problems are therefore reported only if the gallery has not changed meanwhile; otherwise the check runs
        again.
        """
        while True:
            meta: dict[str, str | None] = {}
            try:
                with self._read_transaction() as meta:
                    problems = find_problems(self._db, meta, self._file(meta))
            except OSError as error:
                problems = [str(error)]
            try:
                if not problems or self.settings()["revision"] == meta.get("revision"):
                    return problems
            except OSError:
                return problems

    def backup(self, target: Path) -> None:
        """Copy by SQLite's online backup; writers wait meanwhile, readers do not."""
        begin = "BEGIN" if self.readonly else "BEGIN IMMEDIATE"
        with (
            self._lock,
            transaction(self._db, begin),
            closing(connect(self.path, create=False, readonly=True)) as source,
        ):
            write_backup(source, self._file(read_meta(source)), target)

    def files(self) -> list[Path]:
        """Return the database, its logs and the files of features that exist."""
        beside = self.path.absolute().parent.glob(f"{glob.escape(self.path.name)}*")
        endings = ("", "-wal", "-shm", "-journal")
        names = {f"{self.path.name}{ending}" for ending in endings}
        return sorted(
            file for file in beside if file.name in names or file.name.startswith(f"{self.path.name}.features-")
        )

    def close(self) -> None:
        """Close the database. A gallery in memory is gone."""
        self._cache = None
        self._db.close()
        if self._folder is not None:
            self._folder.cleanup()

    def _file(self, meta: Settings, generations_later: int = 0) -> TemplateFile:
        generation = int(meta.get("generation") or 0) + generations_later
        path = self.path.with_name(f"{self.path.name}.features-{generation}")
        return TemplateFile(path, meta["gallery"] or "", generation, self.cipher)

    def _clean(self) -> None:
        """Overwrite removed templates. If most templates are removed, rewrite the file of features without them."""
        with self._write_transaction() as meta:
            path, new = self._file(meta), self._file(meta, generations_later=1)
            wipe_removed(self._db, meta, path)
            rows = compact(self._db, meta, path, new)
            if rows is not None:
                meta.update(rows=str(rows), generation=str(int(meta["generation"] or 0) + 1))
            current = self._file(meta)
        remove_other_generations(current.path)
        self._empty_log()

    def _empty_log(self) -> None:
        """Truncate the write-ahead log, which still holds removed names. If a reader prevents it, the next change does it."""
        with self._lock:
            try:
                self._db.execute(f"PRAGMA busy_timeout = {LOG_WAIT_MILLISECONDS}")
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            except sqlite3.Error as error:  # no exception, because the change itself is on disk
                warnings.warn(
                    f"the write-ahead log of {self.location} still holds what was removed, until the next change: {error}",
                    stacklevel=2,
                )
            finally:
                self._db.execute(f"PRAGMA busy_timeout = {1000 * LOCK_SECONDS}")

    def _read_consistently(self, read: Callable[[dict[str, str | None]], T]) -> T:
        """Read in one transaction. Repeat it if another process has changed the file of features meanwhile."""
        while True:
            meta: dict[str, str | None] = {}
            try:
                with self._read_transaction() as meta:
                    return read(meta)
            except DamagedGalleryError:
                if self.settings()["revision"] == meta.get("revision"):
                    raise

    @contextmanager
    def _write_transaction(self) -> Iterator[dict[str, str | None]]:
        """Run a transaction that stores changed settings at its end. It takes the write lock first, so that writers queue."""
        if self.readonly:
            raise OSError(
                f"the gallery {self.location} was opened for reading only, or its file or folder cannot be written to"
            )
        with self._lock, transaction(self._db, "BEGIN IMMEDIATE"):
            before = read_meta(self._db)
            meta = dict(before)
            yield meta
            meta["revision"] = str(int(meta["revision"] or 0) + 1)
            for key, value in meta.items():
                if key not in before or before[key] != value:
                    write_meta(self._db, key, value)

    @contextmanager
    def _read_transaction(self) -> Iterator[dict[str, str | None]]:
        """Run a transaction that only reads, and yield the settings."""
        with self._lock, transaction(self._db, "BEGIN"):
            yield read_meta(self._db)


def read_counterexamples(db: sqlite3.Connection, cipher: Cipher | None) -> list[CounterExample]:
    """Return all counter-examples, after comparing them with their checksums."""
    query = (
        "SELECT identity, name, source, feature, c.checksum FROM counterexamples c JOIN identities i ON i.id = identity "
        "ORDER BY c.id"
    )
    examples = []
    for owner, name, source, content, checksum in db.execute(query):
        if checksum != row_checksum(owner, source, content.hex()):
            raise DamagedGalleryError(
                f"the gallery is damaged: a counter-example of {name!r} does not match its checksum"
            )
        plain = content if cipher is None else cipher.decrypt(content, _example_context(owner))
        examples.append(CounterExample(name, source, torch.from_numpy(np.frombuffer(plain, "<f4").astype(np.float32))))
    return examples


def _example_context(owner: int) -> bytes:
    return f"counter-example of {owner}".encode()


def read_names(db: sqlite3.Connection, owners: Collection[int]) -> dict[int, str]:
    """Return the names of identities, compared with their checksums."""
    names = {}
    for owner in owners:
        row = db.execute("SELECT name, templates, checksum FROM identities WHERE id = ?", (owner,)).fetchone()
        if row is None or row[2] != row_checksum(owner, *row[:2]):
            raise DamagedGalleryError("the gallery is damaged: a name is missing or does not match its checksum")
        names[owner] = str(row[0])
    return names


def write_backup(source: sqlite3.Connection, features: TemplateFile, target: Path) -> None:
    """Write a copy of the database and of its file of features. The database appears last, in one step.

    Raises:
        ValueError: If ``target`` exists.
    """
    if target.exists():
        raise ValueError(f"there is a file at {target} already: a backup overwrites nothing; choose a new name")
    meta = read_meta(source)
    beside = TemplateFile(target.with_name(f"{target.name}.features-0"), uuid.uuid4().hex, 0, features.cipher)
    beside.path.unlink(missing_ok=True)
    records = template_file.map_records(features, int(meta.get("dim") or 0), int(meta["rows"] or 0))

    def write(temporary: str) -> None:
        # Both files are written in the temporary folder, which the next backup removes if this one is killed.
        copied = beside._replace(path=Path(f"{temporary}.features-0"))
        template_file.append(copied, 0, template_file.split_records(records))
        _copy_database(source, temporary, beside.gallery)
        os.replace(copied.path, beside.path)

    try:
        write_atomically(target, write, private=True)
    except BaseException as error:
        beside.path.unlink(missing_ok=True)
        if isinstance(error, sqlite3.Error):
            raise OSError(f"{target} cannot be written: {error}") from error
        raise


def _copy_database(source: sqlite3.Connection, temporary: str, gallery: str) -> None:
    with closing(sqlite3.connect(temporary, isolation_level=None)) as copy:
        source.backup(copy)
        write_meta(copy, "generation", 0)
        write_meta(copy, "gallery", gallery)  # so that the files of the copy and of the original cannot be mixed up
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
