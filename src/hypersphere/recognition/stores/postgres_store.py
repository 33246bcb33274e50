"""Galleries on a PostgreSQL server with pgvector, which many machines can share."""

import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..._extras import require
from ...geometry import cosine
from .postgres_database import connect, redact_address, row_checksum, split_address, template_checksum, translate_errors
from .postgres_scan import find_nearest_templates
from .sqlite_store import SQLiteStore
from .store import Cipher, CounterExample, DamagedGalleryError, Recall, Settings, Templates, UncertainCommitError

SPARE = 16  # additional templates that an approximate search scores in float64
MAX_EF_SEARCH = 1000  # pgvector's largest ef_search, the number of templates that an approximate search examines
BATCH = 2000  # rows transferred at a time
MAX_INLINE_DIM = 1900  # larger features do not fit into the page of their row, and a scan takes three times as long
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 8.0  # seconds between attempts to connect again
SECONDS_WITHOUT_PING = 1.0  # a connection that was idle for longer is tested before it is used
MIN_LENGTH, MAX_LENGTH = 1e-15, 1e15  # of features: the server squares lengths in float32
DERIVED_SETTINGS = ("version", "dim", "protection", "fingerprint")  # a copy gets its own values of these
ROW = "i.id, name, i.checksum, t.id, t.source, t.checksum, t.feature"


class StoredRow(NamedTuple):
    """A stored template with its identity, and whether each matches its checksum."""

    name: str
    number: int
    source: str
    feature: Float[np.ndarray, "d"]
    is_intact: bool
    name_is_intact: bool


class PostgresStore:
    """A :class:`Store` on a server: ``postgresql://user@host/database#gallery``, each gallery a schema of its name.

    Any number of machines may write and read at the same time. The default search is exact: all templates are compared in
    float32, and those that may be among the best are scored again in float64. Needs psycopg and pgvector:
    ``pip install 'torch-hypersphere[postgres]'``.
    """

    def __init__(
        self,
        location: str,
        fingerprint: str | None,
        *,
        create: bool = True,
        readonly: bool = False,
        protection: str | None = None,
    ):
        self.location, self.readonly = redact_address(location), readonly
        self._address = location
        _, schema = split_address(location)
        self._identities, self._templates, self._meta = (f"{schema}.{t}" for t in ("identities", "templates", "meta"))
        self._examples = f"{schema}.counterexamples"
        self.cipher: Cipher | None = None
        self._index = f"{schema}.nearest"
        self._lock = threading.RLock()  # serializes the threads of one process
        self._db = connect(location, fingerprint, create=create, readonly=readonly, protection=protection)
        self._used, self._closed = time.monotonic(), False
        self._pause, self._next_attempt = FIRST_PAUSE, 0.0
        settings = self.settings()
        self.fingerprint, self.protection = settings.get("fingerprint"), settings.get("protection")

    def settings(self) -> Settings:
        """Return all settings and the number of identities."""
        with self._transaction():
            query = f"SELECT (SELECT count(*) FROM {self._identities}), (SELECT count(*) FROM {self._examples})"
            people, examples = self._fetch_one(query)
            return {**self._read_settings(), "people": str(people), "counterexamples": str(examples)}

    def put(self, values: Mapping[str, str | None]) -> None:
        """Store settings in one transaction."""
        with self._transaction(writing=True):
            for key, value in values.items():
                self._write_setting(key, value)

    def enrol(self, names: Sequence[str], features: Float[Tensor, "n d"], sources: Sequence[str]) -> list[int]:
        """Insert templates. The same source of an identity replaces its template."""
        lengths = torch.linalg.vector_norm(features.double(), dim=1)
        if not ((lengths >= MIN_LENGTH) & (lengths <= MAX_LENGTH)).all():
            raise ValueError("features on a server must have lengths between 1e-15 and 1e15, got others")
        last = {(name, source): i for i, (name, source) in enumerate(zip(names, sources, strict=True)) if source}
        written = [i for i in range(len(names)) if last.get((names[i], sources[i]), i) == i]
        with self._transaction(writing=True):
            self._fix_dim(features.shape[1])
            owners = self._make_owners(names)
            self._copy_rows_in([(i, owners[names[i]], sources[i], features[i].numpy()) for i in written])
            # Other writers of the same identities wait in `_make_owners`, so there is no conflict here.
            rows = self._db.execute(
                f"INSERT INTO {self._templates} (identity, source, checksum, feature) "
                "SELECT identity, source, checksum, feature FROM incoming ORDER BY position "
                "ON CONFLICT (identity, source) WHERE source <> '' "
                "DO UPDATE SET checksum = EXCLUDED.checksum, feature = EXCLUDED.feature RETURNING id, identity, source"
            ).fetchall()
        numbers: dict[tuple[int, str], list[int]] = {}
        for number, owner, source in reversed(rows):
            numbers.setdefault((owner, source), []).append(int(number))
        keys = [(owners[name], source) for name, source in zip(names, sources, strict=True)]
        return [numbers[key][-1] if key[1] else numbers[key].pop() for key in keys]

    def remove(self, name: str) -> int | None:
        """Delete an identity with its templates."""
        with self._transaction(writing=True):
            row = self._fetch_one(f"SELECT id FROM {self._identities} WHERE name = %s FOR UPDATE", name)
            if row is None:
                return None
            count = self._db.execute(f"DELETE FROM {self._templates} WHERE identity = %s", row).rowcount
            self._db.execute(f"DELETE FROM {self._identities} WHERE id = %s", row)
        return int(count)

    def erase(self) -> list[str]:
        """Rewrite the tables and their indexes without removed rows (``VACUUM FULL``)."""
        with self._lock, translate_errors(self._address):
            self._ensure_connection()
            for table in (self._templates, self._examples, self._identities, self._meta):
                self._db.execute(f"VACUUM FULL {table}")
        return [
            "the write-ahead log of the PostgreSQL server, until it has been recycled, and archives of it",
            "replicas and base backups of the PostgreSQL server",
        ]

    def reject(self, name: str, features: Float[Tensor, "n d"], sources: Sequence[str]) -> bool:
        """Store counter-examples; the same source of an identity replaces the earlier one."""
        with self._transaction(writing=True):
            row = self._fetch_one(f"SELECT id FROM {self._identities} WHERE name = %s FOR UPDATE", name)
            if row is None:
                return False
            for feature, source in zip(features, sources, strict=True):
                array = feature.numpy()
                if source:
                    query = f"DELETE FROM {self._examples} WHERE identity = %s AND source = %s"
                    self._db.execute(query, (row[0], source))
                values = (row[0], source, template_checksum(row[0], source, array), array.astype("<f4").tobytes())
                self._db.execute(
                    f"INSERT INTO {self._examples} (identity, source, checksum, feature) VALUES (%s, %s, %s, %s)",
                    values,
                )
        return True

    def counterexamples(self) -> list[CounterExample]:
        """Return all counter-examples, after comparing them with their checksums."""
        query = (
            f"SELECT identity, name, source, c.checksum, feature FROM {self._examples} c "
            f"JOIN {self._identities} i ON i.id = identity ORDER BY c.id"
        )
        with self._transaction():
            rows = self._db.execute(query).fetchall()
        found = []
        for owner, name, source, checksum, content in rows:
            feature = np.frombuffer(content, "<f4").astype(np.float32)
            if checksum != template_checksum(owner, source, feature):
                raise DamagedGalleryError(
                    f"the gallery is damaged: a counter-example of {name!r} does not match its checksum"
                )
            found.append(CounterExample(name, source, torch.from_numpy(feature)))
        return found

    def counts(self, after: str = "", limit: int | None = None) -> dict[str, int]:
        """Return the templates of identities."""
        query = (
            "SELECT i.id, name, i.checksum, count(t.id) FROM "
            f"(SELECT * FROM {self._identities} WHERE name > %s ORDER BY name LIMIT %s) i LEFT JOIN {self._templates} t "
            "ON identity = i.id GROUP BY i.id, name, i.checksum ORDER BY name"
        )
        with self._transaction():
            rows = self._db.execute(query, (after, limit)).fetchall()
        for owner, name, checksum, _ in rows:
            if checksum != row_checksum(owner, name):
                raise DamagedGalleryError(f"the gallery is damaged: the name {name!r} does not match its checksum")
        return {str(name): int(count) for _, name, _, count in rows}

    def features_of(self, name: str) -> Float[Tensor, "t d"] | None:
        """Return the templates of an identity, None if there is no such identity."""
        query = (
            f"SELECT {ROW} FROM {self._identities} i JOIN {self._templates} t ON identity = i.id "
            "WHERE name = %(name)s ORDER BY t.id"
        )
        with self._transaction():
            rows = self._find_rows(query, {"name": name})
        return torch.from_numpy(np.stack([feature for _, _, feature in rows])) if rows else None

    def templates(self) -> Templates:
        """Return all templates, after comparing them with their checksums."""
        with self._transaction():
            rows = list(self._iterate_rows())
        bad = next((row for row in rows if not (row.is_intact and row.name_is_intact)), None)
        if bad is not None:
            raise DamagedGalleryError(f"the gallery is damaged: template {bad.number} does not match its checksum")
        features = torch.from_numpy(np.stack([row.feature for row in rows])) if rows else torch.zeros(0, 0)
        return Templates(
            [row.name for row in rows], [row.number for row in rows], [row.source for row in rows], features
        )

    def nearest(self, probes: Float[Tensor, "p d"], k: int, approximate: bool = False) -> list[list[tuple[str, float]]]:
        """Find the best identities in float32, on the server or, for many probes, in this process; score them in float64."""
        with self._transaction():
            self._db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")  # several queries see one gallery
            self._set_search_method("index" if approximate else "scan", k)
            if approximate:
                return [
                    _rank_identities(probe, self._find_nearest_by_index(probe, min(MAX_EF_SEARCH, k + SPARE)), k)
                    for probe in probes
                ]
            found = find_nearest_templates(self._db, self._templates, self._identities, probes, k)
            rows = self._find_by_numbers(sorted({one.number for near in found for one in near}))
        return [
            _rank_identities(probe, [rows[one.number] for one in near], k)
            for probe, near in zip(probes, found, strict=True)
        ]

    def build_index(self, k: int, probes: int) -> Recall:
        """Build an HNSW index, and measure its recall with stored templates as probes, which do not find themselves."""
        with self._transaction():
            if self._read_setting("dim") is None:
                raise ValueError(f"the gallery {self.location} is empty: enroll someone first")
            self._db.execute("SET LOCAL maintenance_work_mem = '512MB'")
            self._db.execute(f"DROP INDEX IF EXISTS {self._index}")
            self._db.execute(f"CREATE INDEX nearest ON {self._templates} USING hnsw (feature vector_cosine_ops)")
        with self._transaction():
            query = f"SELECT id, feature FROM {self._templates} ORDER BY hashint8(id), id LIMIT %s"
            sample = self._db.execute(query, (probes,), binary=True).fetchall()
            found: dict[str, list[set[int]]] = {"scan": [], "index": []}
            for method, results in found.items():
                self._set_search_method(method, k)
                for number, feature in sample:
                    near = self._find_nearest_by_index(torch.from_numpy(_to_array(feature)), k + 1)
                    results.append({row[1] for row in near if row[1] != number})
        exact = sum(min(k, len(one)) for one in found["scan"])
        both = sum(min(k, len(a & b)) for a, b in zip(found["scan"], found["index"], strict=True))
        return Recall(both / exact if exact else 1.0, k, len(sample))

    def check(self) -> list[str]:
        """Compare settings, names, templates and counter-examples with their checksums."""
        problems = []
        with self._transaction():
            try:
                self._read_settings()
            except DamagedGalleryError as error:
                problems.append(str(error))
            for row in self._iterate_rows():
                if not row.name_is_intact:
                    problems.append(f"the name {row.name!r} does not match its checksum")
                if not row.is_intact:
                    problems.append(
                        f"template {row.number} of {row.name}, {row.source or 'no file'}, does not match its checksum"
                    )
        try:
            self.counterexamples()
        except DamagedGalleryError as error:
            problems.append(str(error))
        return list(dict.fromkeys(problems))

    def backup(self, target: Path) -> None:
        """Copy a consistent snapshot into an SQLite gallery at ``target``."""
        if target.exists():
            raise ValueError(f"there is a file at {target} already: a backup overwrites nothing; choose a new name")
        with (
            tempfile.TemporaryDirectory(dir=target.absolute().parent, prefix=".backup-") as folder,
            self._transaction(),
        ):
            self._db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            settings = self._read_settings()
            fingerprint, protection = settings.get("fingerprint"), settings.get("protection")
            with closing(SQLiteStore(Path(folder, "copy.db"), fingerprint, protection=protection)) as copy:
                copy.cipher = self.cipher
                batch: list[StoredRow] = []
                for row in self._iterate_rows():
                    if not (row.is_intact and row.name_is_intact):
                        raise DamagedGalleryError(
                            f"the gallery is damaged: template {row.number} does not match its checksum"
                        )
                    batch.append(row)
                    if len(batch) == BATCH:
                        _enrol(copy, batch)
                        batch = []
                _enrol(copy, batch)
                for example in self.counterexamples():
                    copy.reject(example.identity, example.feature[None], [example.source])
                copy.put({key: value for key, value in settings.items() if key not in DERIVED_SETTINGS})
                copy.backup(target)

    def files(self) -> list[Path]:
        """Return an empty list, because the files are on the server."""
        return []

    def close(self) -> None:
        """Close the connection."""
        self._closed = True
        self._db.close()

    def _find_by_numbers(self, numbers: list[int]) -> dict[int, tuple[str, int, np.ndarray]]:
        """Return names, numbers and features of templates by their numbers."""
        query = (
            f"SELECT {ROW} FROM {self._templates} t JOIN {self._identities} i ON i.id = identity "
            "WHERE t.id = ANY(%(numbers)s)"
        )
        return {row[1]: row for row in self._find_rows(query, {"numbers": numbers})}

    def _find_nearest_by_index(self, probe: Float[Tensor, "d"], count: int) -> list[tuple[str, int, np.ndarray]]:
        query = (
            f"SELECT {ROW} FROM (SELECT id, identity, source, checksum, feature FROM {self._templates} "
            f"ORDER BY feature <=> %(probe)s LIMIT %(count)s) t JOIN {self._identities} i ON i.id = identity"
        )
        return self._find_rows(query, {"probe": probe.numpy(), "count": count})

    def _find_rows(self, query: str, values: Mapping[str, object]) -> list[tuple[str, int, np.ndarray]]:
        rows = [_read_row(row) for row in self._db.execute(query, values, binary=True)]
        bad = next((row for row in rows if not (row.is_intact and row.name_is_intact)), None)
        if bad is not None:
            raise DamagedGalleryError(f"the gallery {self.location} is damaged: a template does not match its checksum")
        return [(row.name, row.number, row.feature) for row in rows]

    def _set_search_method(self, method: str, k: int) -> None:
        """Use a full scan (``"scan"``) or the approximate index (``"index"``) until the transaction ends."""
        if method == "index" and self._fetch_one("SELECT to_regclass(%s)", self._index)[0] is None:
            raise ValueError(f"the gallery {self.location} has no approximate index: build it first")
        # Without these settings, the planner could use the approximate index for an exact search.
        self._db.execute(f"SET LOCAL enable_indexscan = {'on' if method == 'index' else 'off'}")
        self._db.execute(f"SET LOCAL enable_seqscan = {'off' if method == 'index' else 'on'}")
        self._db.execute(f"SET LOCAL hnsw.ef_search = {min(MAX_EF_SEARCH, max(100, 4 * (k + SPARE)))}")

    def _make_owners(self, names: Sequence[str]) -> dict[str, int]:
        """Return the identity of each name, and create missing ones. All writers lock the rows in the same order."""
        ordered = sorted(set(names))
        draw = f"SELECT nextval(pg_get_serial_sequence('{self._identities}', 'id')) FROM generate_series(1, %s)"
        ids = sorted(int(number) for (number,) in self._db.execute(draw, (len(ordered),)).fetchall())
        query = (
            f"INSERT INTO {self._identities} AS i (id, name, checksum) "
            "SELECT * FROM unnest(%s::bigint[], %s::text[], %s::bigint[]) "
            "ON CONFLICT (name) DO UPDATE SET name = i.name RETURNING name, id"
        )
        checksums = [row_checksum(owner, name) for owner, name in zip(ids, ordered, strict=True)]
        rows = self._db.execute(query, (ids, ordered, checksums)).fetchall()
        return {str(name): int(owner) for name, owner in rows}

    def _copy_rows_in(self, rows: Sequence[tuple[int, int, str, np.ndarray]]) -> None:
        self._db.execute(
            "CREATE TEMPORARY TABLE incoming (position bigint, identity bigint, source text, checksum bigint, "
            "feature vector) ON COMMIT DROP"
        )
        with self._db.cursor().copy("COPY incoming FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["bigint", "bigint", "text", "bigint", "vector"])
            for position, owner, source, feature in rows:
                copy.write_row((position, owner, source, template_checksum(owner, source, feature), feature))

    def _fix_dim(self, dim: int) -> None:
        """Store the dimension of the first template, which fixes it for all."""
        if self._read_setting("dim") is None:
            self._db.execute(f"LOCK TABLE {self._templates} IN ACCESS EXCLUSIVE MODE")
            if self._read_setting("dim") is None:
                self._db.execute(f"ALTER TABLE {self._templates} ALTER feature TYPE vector({int(dim)})")
                if dim <= MAX_INLINE_DIM:
                    self._db.execute(f"ALTER TABLE {self._templates} ALTER feature SET STORAGE PLAIN")
                self._write_setting("dim", str(dim))
        if self._read_setting("dim") != str(dim):
            raise ValueError(
                f"features must have dimension {self._read_setting('dim')}, that of the gallery, got {dim}"
            )

    def _iterate_rows(self) -> Iterator[StoredRow]:
        query = f"SELECT {ROW} FROM {self._templates} t JOIN {self._identities} i ON i.id = identity ORDER BY t.id"
        with self._db.cursor(name="everything", binary=True) as cursor:
            cursor.itersize = BATCH
            yield from map(_read_row, cursor.execute(query))

    def _read_setting(self, key: str) -> str | None:
        row = self._fetch_one(f"SELECT value FROM {self._meta} WHERE key = %s", key)
        return None if row is None else row[0]

    def _write_setting(self, key: str, value: str | None) -> None:
        query = (
            f"INSERT INTO {self._meta} VALUES (%s, %s, %s) "
            "ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value, checksum = EXCLUDED.checksum"
        )
        self._db.execute(query, (key, value, row_checksum(key, value)))

    def _read_settings(self) -> dict[str, str | None]:
        rows = self._db.execute(f"SELECT key, value, checksum FROM {self._meta}").fetchall()
        for key, value, checksum in rows:
            if checksum != row_checksum(key, value):
                raise DamagedGalleryError(f"the gallery is damaged: its setting {key!r} does not match its checksum")
        return {str(key): value for key, value, _ in rows}

    def _fetch_one(self, query: str, *values: object) -> Any:
        return self._db.execute(query, values).fetchone()

    @contextmanager
    def _transaction(self, writing: bool = False) -> Iterator[None]:
        psycopg = require("psycopg", "postgres")
        with self._lock, translate_errors(self._address):
            self._ensure_connection()
            finished = False
            try:
                with self._db.transaction():
                    yield
                    finished = True
            except psycopg.OperationalError:
                if finished and writing:
                    raise UncertainCommitError(
                        f"the connection to {self.location} was lost during a commit: the change may have been made or not"
                    ) from None
                raise
            self._used = time.monotonic()

    def _ensure_connection(self) -> None:
        """Connect again if the connection was lost. The pause before the next attempt doubles after each failure."""
        psycopg = require("psycopg", "postgres")
        if self._closed:
            raise OSError(f"the gallery {self.location} is closed")
        if not self._db.closed and time.monotonic() - self._used < SECONDS_WITHOUT_PING:
            return
        with suppress(psycopg.Error):
            if not self._db.closed:
                self._db.execute("SELECT 1")
                return
        left = self._next_attempt - time.monotonic()
        if left > 0:
            raise OSError(f"the gallery {self.location} cannot be reached; the next attempt is made in {left:.1f} s")
        self._db.close()
        try:
            self._db = connect(self._address, None, create=False, readonly=self.readonly)
        except (OSError, ValueError):
            self._next_attempt, self._pause = time.monotonic() + self._pause, min(2 * self._pause, LONGEST_PAUSE)
            raise
        self._pause = FIRST_PAUSE
        found = self._read_setting("fingerprint")
        if found != self.fingerprint:
            self._db.close()
            raise OSError(f"the gallery {self.location} was replaced by one of another model: open it again")


def _rank_identities(
    probe: Float[Tensor, "d"], found: Sequence[tuple[str, int, np.ndarray]], k: int
) -> list[tuple[str, float]]:
    """Return the ``k`` best identities of the templates found, by cosines in float64; the template enrolled first among equals."""
    if not found:
        return []
    features = torch.from_numpy(np.stack([feature for _, _, feature in found])).double()
    scores = cosine(probe.double()[None], features, pairwise=True)[0].round(decimals=12).tolist()
    best: dict[str, float] = {}
    for score, _, name in sorted(
        (-score, number, name) for score, (name, number, _) in zip(scores, found, strict=True)
    ):
        best.setdefault(name, -score)
    return list(best.items())[:k]


def _enrol(copy: SQLiteStore, rows: Sequence[StoredRow]) -> None:
    if rows:
        features = torch.from_numpy(np.stack([row.feature for row in rows]))
        copy.enrol([row.name for row in rows], features, [row.source for row in rows])


def _read_row(row: Any) -> StoredRow:
    """Return a row of the columns ``ROW`` after comparing it with its checksums."""
    owner, name, name_checksum, number, source, checksum, vector = row
    feature = _to_array(vector)
    is_intact = checksum == template_checksum(owner, source, feature)
    return StoredRow(
        str(name), int(number), str(source), feature, is_intact, name_checksum == row_checksum(owner, name)
    )


def _to_array(feature: Any) -> Float[np.ndarray, "d"]:
    """Copy a vector of psycopg to an array."""
    return np.array(feature if isinstance(feature, np.ndarray) else feature.to_numpy(), dtype=np.float32)
