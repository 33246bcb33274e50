"""Identities in an SQLite database, their features in a memory-mapped file beside it."""

import glob
import os
import sqlite3
import tempfile
import threading
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ...files import write_atomically
from .._search import DenseRows, exact_search
from . import template_file
from .sqlite_database import LOCK_SECONDS, connect, is_writable, read_meta, row_checksum, transaction, write_meta
from .store import Cipher, CounterExample, DamagedGalleryError, Recall, Settings, Templates, normalize_name
from .template_file import TemplateFile

T = TypeVar("T")
SAME = 1e-5  # relative to the length: features of one file that differ by rounding are the same template
MIN_REMOVED_FOR_COMPACTION = 1024  # removed records
LOG_WAIT_MILLISECONDS = 500  # that emptying the log waits for readers
MAX_LISTED_PROBLEMS = 20  # of one kind; the rest is counted
EXACT = (
    "a gallery in a file is searched exactly: an approximate index (HNSW) is for galleries on a server, postgresql://…"
)


class SQLiteStore:
    """A :class:`Store` in the file ``location`` and, beside it, ``….features-N``; ``":memory:"`` is gone when closed.

    The database is the one truth. A writer appends records to the features' file, brings them to disk, and only then
    commits how many records count; a kill in between leaves records that do not count.
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
            ids, fresh = make_owners(self._db, names)
            path = self._file(meta)
            plan = plan_writes(self._db, meta, path, rows, [ids[name] for name in names], fresh, sources)
            write_templates(self._db, meta, path, rows, sources, plan)
            for key, more in (("rows", len(plan.written)), ("next", len(plan.written)), ("people", len(fresh))):
                meta[key] = str(int(meta[key] or 0) + more)
            (dirty,) = self._db.execute("SELECT EXISTS (SELECT 1 FROM removed WHERE NOT wiped)").fetchone()
        if dirty:
            self._clean()  # templates that were replaced here, or that a killed process removed
        return plan.numbers

    def remove(self, name: str) -> int | None:
        """Remove an identity and overwrite its features with zeros."""
        with self._write_transaction() as meta:
            owner = owner_of(self._db, name)
            if owner is None:
                return None
            found = self._db.execute("SELECT number FROM templates WHERE identity = ?", (owner,)).fetchall()
            self._db.execute("DELETE FROM templates WHERE identity = ?", (owner,))
            self._db.execute("DELETE FROM identities WHERE id = ?", (owner,))
            examples = self._db.execute("DELETE FROM counterexamples WHERE identity = ?", (owner,)).rowcount
            meta["counterexamples"] = str(int(meta["counterexamples"] or 0) - examples)
            self._db.executemany("INSERT INTO removed VALUES (?, 0)", found)
            meta["people"] = str(int(meta["people"] or 0) - 1)
        self._clean()
        return len(found)

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
            owner = owner_of(self._db, name)
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
        """Return the templates of identities, after comparing names with their checksums, and totals if all are listed."""
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
            raise DamagedGalleryError(f"the gallery is damaged: {wrong!r} or its templates do not fit their checksums")
        whole = not after and limit is None
        if (whole and len(rows) != int(meta["people"] or 0)) or (
            whole and sum(row[2] for row in rows) != int(meta["rows"] or 0) - removed
        ):
            raise DamagedGalleryError("the gallery is damaged: identities or templates are missing")
        return {row[1]: row[2] for row in rows}

    def features_of(self, name: str) -> Float[Tensor, "t d"] | None:
        """Return the templates of an identity, None if there is no such identity."""

        def read(meta: Settings) -> Tensor | None:
            return features_of(self._db, self._file(meta), meta, name)

        return self._consistently(read)

    def templates(self) -> Templates:
        """Return all templates, after comparing them with their checksums."""

        def read(meta: Settings) -> Templates:
            at = take_snapshot(self._db, meta, self._file(meta), None)
            rows = self._db.execute(
                "SELECT number, source, name, identity, t.checksum FROM templates t JOIN identities ON id = identity "
                "ORDER BY number"
            ).fetchall()
            slots = np.searchsorted(at.records["number"], np.array([row[0] for row in rows], dtype=np.int64))
            whole = all(row[4] == row_checksum(row[3], row[1], row[0]) for row in rows)
            if len(rows) != len(at.records) - at.removed or not whole:
                raise DamagedGalleryError("the gallery is damaged: templates are missing or do not fit their checksums")
            names = names_of(self._db, {row[3] for row in rows})
            features = at.features[torch.from_numpy(slots)].clone()
            return Templates(
                [names[row[3]] for row in rows], [row[0] for row in rows], [row[1] for row in rows], features
            )

        return self._consistently(read)

    def nearest(self, probes: Float[Tensor, "p d"], k: int, approximate: bool = False) -> list[list[tuple[str, float]]]:
        """Search exactly through the memory-mapped features."""
        if approximate:
            raise ValueError(EXACT)

        def find(meta: Settings) -> list[list[tuple[str, float]]]:
            self._cache = take_snapshot(self._db, meta, self._file(meta), self._cache)
            found = nearest_identities(self._cache, probes, k)
            names = names_of(self._db, {owner for row in found for owner, _ in row})
            return [[(names[owner], score) for owner, score in row] for row in found]

        return self._consistently(find)

    def build_index(self, k: int, probes: int) -> Recall:
        """Refuse: this store has no approximate index."""
        raise ValueError(EXACT)

    def check(self) -> list[str]:
        """Compare everything with its checksums and with each other.

        The features' file is no part of a snapshot: another process may overwrite removed templates meanwhile. Problems count
        only if nothing has changed since the snapshot, otherwise everything is compared again.
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

    def _file(self, meta: Settings, later: int = 0) -> TemplateFile:
        generation = int(meta.get("generation") or 0) + later
        path = self.path.with_name(f"{self.path.name}.features-{generation}")
        return TemplateFile(path, meta["gallery"] or "", generation, self.cipher)

    def _clean(self) -> None:
        """Overwrite removed templates, and rewrite the file of features when most of it is such."""
        with self._write_transaction() as meta:
            path, new = self._file(meta), self._file(meta, 1)
            wipe_removed(self._db, meta, path)
            kept = compact(self._db, meta, path, new)
            if kept is not None:
                meta.update(rows=str(kept), generation=str(int(meta["generation"] or 0) + 1))
            current = self._file(meta)
        remove_other_generations(current.path)
        self._empty_log()

    def _empty_log(self) -> None:
        """Truncate the write-ahead log, which still holds removed names; left to the next change if somebody is reading."""
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

    def _consistently(self, read: Callable[[dict[str, str | None]], T]) -> T:
        """Read in one snapshot; again, if a change by another process touched the features' file meanwhile."""
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
        """Run a transaction on the settings, all or nothing. It takes the write lock at once, so that writers queue."""
        if self.readonly:
            raise OSError(
                f"the gallery {self.location} was opened for reading only, or lies where it cannot be changed"
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
        """Yield the settings, with one snapshot for several statements."""
        with self._lock, transaction(self._db, "BEGIN"):
            yield read_meta(self._db)


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


def take_snapshot(db: sqlite3.Connection, meta: Settings, path: TemplateFile, before: Snapshot | None) -> Snapshot:
    """Map the features at this revision; of those that ``before`` knows nothing is read again.

    Raises:
        DamagedGalleryError: When a new record does not fit its checksum.
    """
    revision, generation, rows = (int(meta[key] or 0) for key in ("revision", "generation", "rows"))
    if before is not None and before.revision == revision:
        return before
    records = template_file.map_records(path, int(meta.get("dim") or 0), rows)
    known = before if before is not None and before.generation == generation else None
    first = 0 if known is None else len(known.records)
    (removed,) = db.execute("SELECT COUNT(*) FROM removed").fetchone()
    counts = _counts(db, records, removed, known)
    bad = template_file.find_damaged(records[first:]) + first
    if len(bad) and (counts is None or counts[torch.from_numpy(bad)].any()):
        raise DamagedGalleryError(f"{path} is damaged: {len(bad)} templates do not fit their checksums")
    features = _map_features(path, records, known, counts)
    new = torch.cat([torch.linalg.vector_norm(part, dim=1) for part in features[first:].split(template_file.CHUNK)])
    lengths = torch.cat([known.lengths, new]) if known is not None else new
    if counts is not None:
        lengths = lengths.where(counts, 1.0)  # removed features are zeros, which have no direction to divide by
    return Snapshot(revision, generation, int(meta["people"] or 0), records, features, lengths, removed, counts)


def _map_features(
    path: TemplateFile, records: np.ndarray, known: Snapshot | None, counts: Tensor | None
) -> Float[Tensor, "n d"]:
    """Return the features of all records: mapped, or those of an encrypted gallery decrypted, each only once."""
    if path.cipher is None:
        return torch.from_numpy(records["feature"])
    first, dim = 0 if known is None else len(known.records), record_dim(records)
    new = template_file.read_features(
        records[first:], dim, path.cipher, None if counts is None else counts[first:].numpy()
    )
    features = torch.from_numpy(new)
    if known is None:
        return features
    both = torch.cat([known.features, features])
    return both if counts is None else both.masked_fill_(~counts[:, None], 0.0)  # nothing removed stays in memory


def record_dim(records: np.ndarray) -> int:
    """Return the dimension of the features in encrypted records."""
    return (records.dtype["feature"].itemsize - template_file.SEAL_BYTES) // 4


def read_counterexamples(db: sqlite3.Connection, cipher: Cipher | None) -> list[CounterExample]:
    """Return all counter-examples, after comparing them with their checksums."""
    query = (
        "SELECT identity, name, source, feature, c.checksum FROM counterexamples c JOIN identities i ON i.id = identity "
        "ORDER BY c.id"
    )
    found = []
    for owner, name, source, content, checksum in db.execute(query):
        if checksum != row_checksum(owner, source, content.hex()):
            raise DamagedGalleryError(
                f"the gallery is damaged: a counter-example of {name!r} does not fit its checksum"
            )
        plain = content if cipher is None else cipher.decrypt(content, _example_context(owner))
        found.append(CounterExample(name, source, torch.from_numpy(np.frombuffer(plain, "<f4").astype(np.float32))))
    return found


def _example_context(owner: int) -> bytes:
    return f"counter-example of {owner}".encode()


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


def read_features(
    path: TemplateFile, meta: Settings, owner: int, rows: Sequence[tuple[int, str, int]]
) -> Float[Tensor, "t d"]:
    """Return the features of templates ``(number, source, checksum)`` of one identity, in the order of their numbers."""
    records = template_file.map_records(path, int(meta.get("dim") or 0), int(meta["rows"] or 0))
    slots = [template_file.find_slot(records, number) for number, _, _ in sorted(rows)]
    present = np.array([slot for slot in slots if slot is not None], dtype=np.int64)
    own = np.ascontiguousarray(records[present])
    sealed = all(checksum == row_checksum(owner, source, number) for number, source, checksum in rows)
    if len(own) < len(rows) or not sealed or (own["identity"] != owner).any() or len(template_file.find_damaged(own)):
        raise DamagedGalleryError(f"{path} is damaged: a template does not fit its checksum")
    return torch.from_numpy(template_file.read_features(own, int(meta.get("dim") or 0), path.cipher).copy())


def features_of(db: sqlite3.Connection, path: TemplateFile, meta: Settings, name: str) -> Float[Tensor, "t d"] | None:
    """Return all templates of a name, after comparing their number with what the identity says, None if it is unknown."""
    row = db.execute("SELECT id, templates, checksum FROM identities WHERE name = ?", (name,)).fetchone()
    if row is None:
        return None
    owner, count, checksum = row
    query = "SELECT number, source, checksum FROM templates WHERE identity = ?"
    rows = db.execute(query, (owner,)).fetchall()
    if checksum != row_checksum(owner, name, count) or len({number for number, _, _ in rows}) != count:
        raise DamagedGalleryError(f"the gallery is damaged: templates of {name!r} are missing")
    return read_features(path, meta, owner, rows)


def names_of(db: sqlite3.Connection, owners: Collection[int]) -> dict[int, str]:
    """Return the names of identities, compared with their checksums."""
    names = {}
    for owner in owners:
        row = db.execute("SELECT name, templates, checksum FROM identities WHERE id = ?", (owner,)).fetchone()
        if row is None or row[2] != row_checksum(owner, *row[:2]):
            raise DamagedGalleryError("the gallery is damaged: a name is missing or does not fit its checksum")
        names[owner] = str(row[0])
    return names


def _counts(
    db: sqlite3.Connection, records: np.ndarray, removed: int, known: Snapshot | None
) -> Bool[Tensor, "n"] | None:
    """Return which records count. Removed ones stay removed; new ones are looked up only if there are any."""
    if not removed:
        return None
    if known is not None and known.removed == removed and known.counts is not None:
        new = torch.ones(len(records) - len(known.records), dtype=torch.bool)
        return torch.cat([known.counts, new])
    gone = np.fromiter((number for (number,) in db.execute("SELECT number FROM removed")), np.int64, removed)
    return torch.from_numpy(~np.isin(records["number"], gone))


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


def plan_writes(
    db: sqlite3.Connection,
    meta: Settings,
    path: TemplateFile,
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
        known = _find_template(db, owner, source) if source and owner not in fresh else None
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


def write_templates(
    db: sqlite3.Connection,
    meta: Settings,
    path: TemplateFile,
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
                yield template_file.pack(numbers[part], owners[part], rows[part], path.cipher)

        template_file.append(path, int(meta["rows"] or 0), parts())
    entries = ((what.owners[i], sources[i], what.numbers[i]) for i in what.written)
    db.executemany("INSERT INTO templates VALUES (?, ?, ?, ?)", ((*entry, row_checksum(*entry)) for entry in entries))
    db.executemany("DELETE FROM templates WHERE identity = ? AND source = ? AND number = ?", what.replaced)
    db.executemany("INSERT INTO removed VALUES (?, 0)", [(number,) for _, _, number in what.replaced])
    changes = Counter(what.owners[i] for i in what.written)
    changes.subtract(owner for owner, _, _ in what.replaced)
    for owner, more in changes.items():
        name, count = db.execute("SELECT name, templates FROM identities WHERE id = ?", (owner,)).fetchone()
        values = (count + more, row_checksum(owner, name, count + more), owner)
        db.execute("UPDATE identities SET templates = ?, checksum = ? WHERE id = ?", values)


def wipe_removed(db: sqlite3.Connection, meta: Settings, path: TemplateFile) -> None:
    """Overwrite the features of removed templates, also those that a killed process did not come to."""
    numbers = [number for (number,) in db.execute("SELECT number FROM removed WHERE NOT wiped")]
    if numbers:
        dim = int(meta.get("dim") or 0)
        records = template_file.map_records(path, dim, int(meta["rows"] or 0))
        slots = (template_file.find_slot(records, number) for number in numbers)
        template_file.wipe(path, dim, [slot for slot in slots if slot is not None])
        db.execute("UPDATE removed SET wiped = 1")


def compact(
    db: sqlite3.Connection, meta: Mapping[str, str | None], path: TemplateFile, new: TemplateFile
) -> int | None:
    """Write the remaining records to ``new`` if most are removed; return their number, None if nothing was done."""
    rows = int(meta["rows"] or 0)
    (removed,) = db.execute("SELECT COUNT(*) FROM removed").fetchone()
    if removed < MIN_REMOVED_FOR_COMPACTION or 2 * removed < rows:
        return None
    records = template_file.map_records(path, int(meta.get("dim") or 0), rows)
    gone = np.fromiter((number for (number,) in db.execute("SELECT number FROM removed")), np.int64, removed)
    with suppress(FileNotFoundError):
        new.path.unlink()
    kept = template_file.append(new, 0, template_file.split_records(records, ~np.isin(records["number"], gone)))
    db.execute("DELETE FROM removed")
    return kept


def remove_other_generations(path: Path) -> None:
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


def _find_template(db: sqlite3.Connection, owner: int, source: str) -> tuple[int, str, int] | None:
    query = "SELECT number, source, checksum FROM templates WHERE identity = ? AND source = ?"
    row = db.execute(query, (owner, source)).fetchone()
    return None if row is None else (int(row[0]), str(row[1]), int(row[2]))


def find_problems(db: sqlite3.Connection, meta: Settings, path: TemplateFile) -> list[str]:
    """Return what is wrong with a gallery: the database itself, checksums, and what must fit together but does not."""
    found = [f"the database: {row[0]}" for row in db.execute("PRAGMA integrity_check") if row[0] != "ok"]
    for kind in (_names(db, meta), _templates(db, meta, path), _examples(db, meta)):
        listed = list(kind)
        more = len(listed) - MAX_LISTED_PROBLEMS
        found += listed[:MAX_LISTED_PROBLEMS] + ([f"and {more} more like the last"] if more > 0 else [])
    return found


def write_backup(source: sqlite3.Connection, features: TemplateFile, target: Path) -> None:
    """Write a copy of the database and of the features' file that belongs to it; the database comes last, whole.

    Raises:
        ValueError: When there is something at ``target`` already.
    """
    if target.exists():
        raise ValueError(f"there is a file at {target} already: a backup takes the place of nothing")
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


def _names(db: sqlite3.Connection, meta: Settings) -> Iterator[str]:
    rows = db.execute("SELECT id, name, templates, checksum FROM identities").fetchall()
    for owner, name, count, checksum in rows:
        if checksum != row_checksum(owner, name, count):
            yield f"the name {name!r} does not fit its checksum"
        elif name != normalize_name(name):
            yield f"the name {name!r} is not in its normal form"
    if len(rows) != int(meta["people"] or 0):
        yield f"{meta['people']} identities were enrolled, {len(rows)} are there"


def _templates(db: sqlite3.Connection, meta: Settings, path: TemplateFile) -> Iterator[str]:
    records = template_file.map_records(path, int(meta.get("dim") or 0), int(meta["rows"] or 0))
    removed = {number for (number,) in db.execute("SELECT number FROM removed")}
    people = {owner for (owner,) in db.execute("SELECT id FROM identities")}
    numbers, owners = (np.ascontiguousarray(records[key]) for key in ("number", "identity"))
    if (np.diff(numbers) <= 0).any():
        yield f"{path.name}: templates are not in the order of their numbers"
    for slot in template_file.find_damaged(records).tolist():
        if int(numbers[slot]) not in removed:
            yield f"{path.name}: template {numbers[slot]} does not fit its checksum"
    entered = 0
    owner_of = dict(zip(numbers.tolist(), owners.tolist(), strict=True))
    for owner, source, number, checksum in db.execute("SELECT identity, source, number, checksum FROM templates"):
        entered += 1
        if checksum != row_checksum(owner, source, number):
            yield f"template {number} of {source or 'no file'} does not fit its checksum"
        elif owner not in people or owner_of.get(number) != owner or number in removed:
            yield f"template {number} of {source or 'no file'} has no identity or no feature"
    if entered != len(records) - len(removed):
        yield f"{len(records) - len(removed)} templates were enrolled, {entered} are entered"


def _examples(db: sqlite3.Connection, meta: Settings) -> Iterator[str]:
    count = 0
    people = {owner for (owner,) in db.execute("SELECT id FROM identities")}
    for owner, source, content, checksum in db.execute(
        "SELECT identity, source, feature, checksum FROM counterexamples"
    ):
        count += 1
        if checksum != row_checksum(owner, source, content.hex()):
            yield f"the counter-example {source or 'without a file'} does not fit its checksum"
        elif owner not in people:
            yield f"the counter-example {source or 'without a file'} has no identity"
    if count != int(meta["counterexamples"] or 0):
        yield f"{meta['counterexamples']} counter-examples were stored, {count} are there"
