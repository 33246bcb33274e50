"""Identities in an SQLite database, their features in a memory-mapped file beside it."""

import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

from jaxtyping import Float
from torch import Tensor

from . import sqlite_writing as writing
from .sqlite_database import connect, read_meta, seal, transaction, writable, write_meta
from .sqlite_reading import Snapshot, features_of, names_of, nearest_identities, snapshot
from .sqlite_upkeep import problems, write_backup
from .store import DamagedGalleryError, Recall

T = TypeVar("T")
Settings = dict[str, str | None]
EXACT = (
    "a gallery in a file is searched exactly: an approximate index (HNSW) is for galleries on a server, postgresql://…"
)


class SQLiteStore:
    """A :class:`Store` in the file ``location`` and, beside it, ``….features-N``; ``":memory:"`` is gone when closed.

    The database is the one truth. A writer appends records to the features' file, brings them to disk, and only then
    commits how many records count; a kill in between leaves records that do not count.
    """

    def __init__(self, location: str | Path, fingerprint: str | None, *, create: bool = True, readonly: bool = False):
        self._folder = tempfile.TemporaryDirectory() if str(location) == ":memory:" else None
        self.path = Path(self._folder.name, "gallery.db") if self._folder else Path(location)
        self.location = str(location)
        self.readonly = readonly or (self.path.exists() and not writable(self.path))
        create = create and not self.readonly
        self._db = connect(self.path, create=create, readonly=self.readonly)
        self._cache: Snapshot | None = None
        self._lock = threading.RLock()  # threads of one process take turns
        try:
            with self._reading() as meta:
                nameless = "fingerprint" not in meta
            if create and nameless:
                with transaction(self._db, "BEGIN IMMEDIATE"):
                    if "fingerprint" not in read_meta(self._db):
                        write_meta(self._db, "fingerprint", fingerprint)
        except BaseException:
            self.close()
            raise

    def get(self, key: str) -> str | None:
        """Return one setting."""
        with self._reading() as meta:
            return meta.get(key)

    def put(self, values: Mapping[str, str | None]) -> None:
        """Keep settings in one transaction."""
        with self._writing() as meta:
            meta.update(values)

    def enrol(self, names: Sequence[str], features: Float[Tensor, "n d"], sources: Sequence[str]) -> list[int]:
        """Append templates; a source that the identity has already keeps its template, or gets the new one in its place."""
        rows = features.numpy()
        with self._writing() as meta:
            meta["dim"] = meta.get("dim") or str(rows.shape[1])
            ids, fresh = writing.make_owners(self._db, names)
            path = self._file(meta)
            plan = writing.plan(self._db, meta, path, rows, [ids[name] for name in names], fresh, sources)
            writing.write(self._db, meta, path, rows, sources, plan)
            for key, more in (("rows", len(plan.written)), ("next", len(plan.written)), ("people", len(fresh))):
                meta[key] = str(int(meta[key] or 0) + more)
            (dirty,) = self._db.execute("SELECT EXISTS (SELECT 1 FROM removed WHERE NOT wiped)").fetchone()
        if dirty:
            self._clean()  # what gave way here, or what a killed process removed
        return plan.numbers

    def remove(self, name: str) -> int | None:
        """Forget an identity and overwrite its features with zeros."""
        with self._writing() as meta:
            owner = writing.owner_of(self._db, name)
            if owner is None:
                return None
            found = self._db.execute("SELECT number FROM templates WHERE identity = ?", (owner,)).fetchall()
            self._db.execute("DELETE FROM templates WHERE identity = ?", (owner,))
            self._db.execute("DELETE FROM identities WHERE id = ?", (owner,))
            self._db.executemany("INSERT INTO removed VALUES (?, 0)", found)
            meta["people"] = str(int(meta["people"] or 0) - 1)
        self._clean()
        return len(found)

    def counts(self) -> dict[str, int]:
        """Return the templates of every identity, after comparing names and totals with what is known of them."""
        query = (
            "SELECT id, name, templates, identities.checksum, COUNT(DISTINCT number) FROM identities LEFT JOIN templates "
            "ON identity = id GROUP BY id ORDER BY name"
        )
        with self._reading() as meta:
            rows = self._db.execute(query).fetchall()
            (removed,) = self._db.execute("SELECT COUNT(*) FROM removed").fetchone()
        wrong = next((row[1] for row in rows if row[3] != seal(*row[:3]) or row[4] != row[2]), None)
        if wrong is not None:
            raise DamagedGalleryError(f"the gallery is damaged: {wrong!r} or its templates do not fit their checksums")
        if len(rows) != int(meta["people"] or 0) or sum(row[2] for row in rows) != int(meta["rows"] or 0) - removed:
            raise DamagedGalleryError("the gallery is damaged: identities or templates are missing")
        return {row[1]: row[2] for row in rows}

    def size(self) -> int:
        """Return how many identities there are."""
        return int(self.get("people") or 0)

    def features_of(self, name: str) -> Float[Tensor, "t d"] | None:
        """Return the templates of an identity, None if there is no such identity."""

        def read(meta: Settings) -> Tensor | None:
            return features_of(self._db, self._file(meta), meta, name)

        return self._consistently(read)

    def nearest(self, probes: Float[Tensor, "p d"], k: int, approximate: bool = False) -> list[list[tuple[str, float]]]:
        """Search exactly through the memory-mapped features."""
        if approximate:
            raise ValueError(EXACT)

        def find(meta: Settings) -> list[list[tuple[str, float]]]:
            self._cache = snapshot(self._db, meta, self._file(meta), self._cache)
            found = nearest_identities(self._cache, probes, k)
            names = names_of(self._db, {owner for row in found for owner, _ in row})
            return [[(names[owner], score) for owner, score in row] for row in found]

        return self._consistently(find)

    def build_index(self, k: int, probes: int) -> Recall:
        """Refuse: this store has no approximate index."""
        raise ValueError(EXACT)

    def check(self) -> list[str]:
        """Compare everything with its checksums and with each other."""
        try:
            with self._reading() as meta:
                return problems(self._db, meta, self._file(meta))
        except OSError as error:
            return [str(error)]

    def backup(self, target: Path) -> None:
        """Copy by SQLite's online backup; writers wait meanwhile, readers do not."""
        begin = "BEGIN" if self.readonly else "BEGIN IMMEDIATE"
        with (
            self._lock,
            transaction(self._db, begin),
            closing(connect(self.path, create=False, readonly=True)) as source,
        ):
            write_backup(source, self._file(read_meta(source)), target)

    def close(self) -> None:
        """Close the database; what was in memory only is gone."""
        self._cache = None
        self._db.close()
        if self._folder is not None:
            self._folder.cleanup()

    def _file(self, meta: Mapping[str, str | None], later: int = 0) -> Path:
        return self.path.with_name(f"{self.path.name}.features-{int(meta.get('generation') or 0) + later}")

    def _clean(self) -> None:
        """Overwrite what was removed; rewrite the features' file when most of it is that."""
        with self._writing() as meta:
            path, new = self._file(meta), self._file(meta, 1)
            writing.wipe_removed(self._db, meta, path)
            kept = writing.compacted(self._db, meta, path, new)
            if kept is not None:
                meta.update(rows=str(kept), generation=str(int(meta["generation"] or 0) + 1))
            current = self._file(meta)
        writing.remove_others(current)

    def _consistently(self, read: Callable[[Settings], T]) -> T:
        """Read in one snapshot; again, if a change by another process touched the features' file meanwhile."""
        while True:
            meta: Settings = {}
            try:
                with self._reading() as meta:
                    return read(meta)
            except DamagedGalleryError:
                if self.get("revision") == meta.get("revision"):
                    raise

    @contextmanager
    def _writing(self) -> Iterator[Settings]:
        """One transaction on the settings, all or nothing; it takes the write lock at once, so that writers queue."""
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
    def _reading(self) -> Iterator[Settings]:
        """The settings, and one snapshot for several statements."""
        with self._lock, transaction(self._db, "BEGIN"):
            yield read_meta(self._db)
