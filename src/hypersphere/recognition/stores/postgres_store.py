"""Identities on a PostgreSQL server with pgvector, for galleries that many machines share."""

import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ...geometry import cosine
from .postgres_database import connect, failing_clearly, feature_seal, shown, split_address
from .postgres_scan import nearest_templates
from .sqlite_store import SQLiteStore
from .store import Recall

SPARE = 16  # templates beyond k that an approximate search scores again in float64
DEEP = 1000  # pgvector's largest ef_search: templates that an approximate search may look at
BATCH = 2000  # rows that travel at a time
INLINE = 1900  # dimensions that fit into a page beside the rest of the row; fetched from elsewhere a scan takes thrice as long
LENGTHS = (1e-15, 1e15)  # the server squares lengths in float32


class StoredRow(NamedTuple):
    """A template as it is stored."""

    name: str
    number: int
    source: str
    checksum: int
    feature: Float[np.ndarray, "d"]


class PostgresStore:
    """A :class:`Store` on a server: ``postgresql://user@host/database#gallery``, each gallery a schema of its name.

    Any number of machines may write and read at the same time. Search is exact unless asked otherwise: all templates are
    compared in float32, and those that may be the best are scored again in float64. Needs psycopg and
    pgvector: ``pip install 'torch-hypersphere[postgres]'``.
    """

    def __init__(self, location: str, fingerprint: str | None, *, create: bool = True, readonly: bool = False):
        self.location, self.readonly = shown(location), readonly
        _, schema = split_address(location)
        self._identities, self._templates, self._meta = (f"{schema}.{t}" for t in ("identities", "templates", "meta"))
        self._index = f"{schema}.nearest"
        self._lock = threading.RLock()  # threads of one process take turns
        self._db = connect(location, fingerprint, create=create, readonly=readonly)

    def get(self, key: str) -> str | None:
        """Return one setting."""
        with self._transaction():
            return self._get(key)

    def put(self, values: Mapping[str, str | None]) -> None:
        """Keep settings in one transaction."""
        with self._transaction():
            for key, value in values.items():
                self._put(key, value)

    def enrol(self, names: Sequence[str], features: Float[Tensor, "n d"], sources: Sequence[str]) -> list[int]:
        """Insert templates; a source that the identity has already gets the new feature in place of the old one."""
        lengths = torch.linalg.vector_norm(features.double(), dim=1)
        if not ((lengths >= LENGTHS[0]) & (lengths <= LENGTHS[1])).all():
            raise ValueError("features on a server must have lengths between 1e-15 and 1e15, got others")
        last = {(name, source): i for i, (name, source) in enumerate(zip(names, sources, strict=True)) if source}
        written = [i for i in range(len(names)) if last.get((names[i], sources[i]), i) == i]
        with self._transaction():
            self._fix_dim(features.shape[1])
            owners = self._owners(names)
            self._copy_in([(i, owners[names[i]], sources[i], features[i].numpy()) for i in written])
            # Whoever writes for the same identities waits in `_owners`, so nobody can be in the way here.
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
        with self._transaction():
            row = self._one(f"SELECT id FROM {self._identities} WHERE name = %s FOR UPDATE", name)
            if row is None:
                return None
            count = self._db.execute(f"DELETE FROM {self._templates} WHERE identity = %s", row).rowcount
            self._db.execute(f"DELETE FROM {self._identities} WHERE id = %s", row)
        return int(count)

    def counts(self) -> dict[str, int]:
        """Return the templates of every identity."""
        query = (
            f"SELECT name, count(t.id) FROM {self._identities} i LEFT JOIN {self._templates} t ON identity = i.id "
            "GROUP BY name ORDER BY name"
        )
        with self._transaction():
            return {str(name): int(count) for name, count in self._db.execute(query).fetchall()}

    def size(self) -> int:
        """Return how many identities there are."""
        with self._transaction():
            return int(self._one(f"SELECT count(*) FROM {self._identities}")[0])

    def features_of(self, name: str) -> Float[Tensor, "t d"] | None:
        """Return the templates of an identity, None if there is no such identity."""
        query = (
            f"SELECT t.feature FROM {self._identities} i JOIN {self._templates} t ON identity = i.id "
            "WHERE name = %s ORDER BY t.id"
        )
        with self._transaction():
            rows = self._db.execute(query, (name,), binary=True).fetchall()
        return torch.from_numpy(np.stack([_array(feature) for (feature,) in rows])) if rows else None

    def nearest(self, probes: Float[Tensor, "p d"], k: int, approximate: bool = False) -> list[list[tuple[str, float]]]:
        """Find the best identities in float32, by the server or for many probes here, and score them again in float64."""
        with self._transaction():
            self._db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")  # several queries see one gallery
            self._search_by("index" if approximate else "scan", k)
            if approximate:
                return [_ranked(probe, self._near_templates(probe, min(DEEP, k + SPARE)), k) for probe in probes]
            found = nearest_templates(self._db, self._templates, self._identities, probes, k)
            rows = self._rows(sorted({one.number for near in found for one in near}))
        return [
            _ranked(probe, [rows[one.number] for one in near], k) for probe, near in zip(probes, found, strict=True)
        ]

    def build_index(self, k: int, probes: int) -> Recall:
        """Build an HNSW index, and measure its recall with stored templates as probes, themselves left out."""
        with self._transaction():
            if self._get("dim") is None:
                raise ValueError(f"the gallery {self.location} is empty: enrol someone first")
            self._db.execute("SET LOCAL maintenance_work_mem = '512MB'")
            self._db.execute(f"DROP INDEX IF EXISTS {self._index}")
            self._db.execute(f"CREATE INDEX nearest ON {self._templates} USING hnsw (feature vector_cosine_ops)")
        with self._transaction():
            query = f"SELECT id, feature FROM {self._templates} ORDER BY hashint8(id), id LIMIT %s"
            sample = self._db.execute(query, (probes,), binary=True).fetchall()
            found: dict[str, list[set[int]]] = {"scan": [], "index": []}
            for way, results in found.items():
                self._search_by(way, k)
                for number, feature in sample:
                    near = self._near_templates(torch.from_numpy(_array(feature)), k + 1)
                    results.append({row[1] for row in near if row[1] != number})
        exact = sum(min(k, len(one)) for one in found["scan"])
        both = sum(min(k, len(a & b)) for a, b in zip(found["scan"], found["index"], strict=True))
        return Recall(both / exact if exact else 1.0, k, len(sample))

    def check(self) -> list[str]:
        """Compare every template with its checksum; the server looks after the rest."""
        with self._transaction():
            return [
                f"template {row.number} of {row.name}, {row.source or 'no file'}, does not fit its checksum"
                for row in self._everything()
                if row.checksum != feature_seal(row.source, row.feature)
            ]

    def backup(self, target: Path) -> None:
        """Copy everything, as it was at one moment, into an SQLite gallery at ``target``."""
        if target.exists():
            raise ValueError(f"there is a file at {target} already: a backup takes the place of nothing")
        with (
            tempfile.TemporaryDirectory(dir=target.absolute().parent, prefix=".backup-") as folder,
            self._transaction(),
        ):
            self._db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            settings = dict(self._db.execute(f"SELECT key, value FROM {self._meta}").fetchall())
            with closing(SQLiteStore(Path(folder, "copy.db"), settings.get("fingerprint"))) as copy:
                batch: list[StoredRow] = []
                for row in self._everything():
                    batch.append(row)
                    if len(batch) == BATCH:
                        _enrol(copy, batch)
                        batch = []
                _enrol(copy, batch)
                copy.put({key: value for key, value in settings.items() if key not in ("version", "dim")})
                copy.backup(target)

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    def _rows(self, numbers: list[int]) -> dict[int, tuple[str, int, np.ndarray]]:
        """Names, numbers and features of templates by their numbers."""
        query = (
            f"SELECT name, t.id, t.feature FROM {self._templates} t JOIN {self._identities} i ON i.id = identity "
            "WHERE t.id = ANY(%(numbers)s)"
        )
        return {row[1]: row for row in self._found(query, {"numbers": numbers})}

    def _near_templates(self, probe: Float[Tensor, "d"], count: int) -> list[tuple[str, int, np.ndarray]]:
        query = (
            f"SELECT name, t.id, t.feature FROM (SELECT id, identity, feature FROM {self._templates} "
            f"ORDER BY feature <=> %(probe)s LIMIT %(count)s) t JOIN {self._identities} i ON i.id = identity"
        )
        return self._found(query, {"probe": probe.numpy(), "count": count})

    def _found(self, query: str, values: Mapping[str, object]) -> list[tuple[str, int, np.ndarray]]:
        rows = self._db.execute(query, values, binary=True).fetchall()
        return [(str(name), int(number), _array(feature)) for name, number, feature in rows]

    def _search_by(self, way: str, k: int) -> None:
        """Until the transaction ends: by scanning everything, or by the index, which must be there."""
        if way == "index" and self._one("SELECT to_regclass(%s)", self._index)[0] is None:
            raise ValueError(f"the gallery {self.location} has no approximate index: build it first")
        # A planner that may choose could take the approximate index for an exact answer.
        self._db.execute(f"SET LOCAL enable_indexscan = {'on' if way == 'index' else 'off'}")
        self._db.execute(f"SET LOCAL enable_seqscan = {'off' if way == 'index' else 'on'}")
        self._db.execute(f"SET LOCAL hnsw.ef_search = {min(DEEP, max(100, 4 * (k + SPARE)))}")

    def _owners(self, names: Sequence[str]) -> dict[str, int]:
        """Identities of the names, made where missing; their rows are locked, in one order for all writers."""
        query = (
            f"INSERT INTO {self._identities} AS i (name) SELECT unnest(%s::text[]) "
            "ON CONFLICT (name) DO UPDATE SET name = i.name RETURNING name, id"
        )
        rows = self._db.execute(query, (sorted(set(names)),)).fetchall()
        return {str(name): int(owner) for name, owner in rows}

    def _copy_in(self, rows: Sequence[tuple[int, int, str, np.ndarray]]) -> None:
        self._db.execute(
            "CREATE TEMPORARY TABLE incoming (position bigint, identity bigint, source text, checksum bigint, "
            "feature vector) ON COMMIT DROP"
        )
        with self._db.cursor().copy("COPY incoming FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["bigint", "bigint", "text", "bigint", "vector"])
            for position, owner, source, feature in rows:
                copy.write_row((position, owner, source, feature_seal(source, feature), feature))

    def _fix_dim(self, dim: int) -> None:
        """The first template fixes the dimension for all."""
        if self._get("dim") is None:
            self._db.execute(f"LOCK TABLE {self._templates} IN ACCESS EXCLUSIVE MODE")
            if self._get("dim") is None:
                self._db.execute(f"ALTER TABLE {self._templates} ALTER feature TYPE vector({int(dim)})")
                if dim <= INLINE:
                    self._db.execute(f"ALTER TABLE {self._templates} ALTER feature SET STORAGE PLAIN")
                self._put("dim", str(dim))
        if self._get("dim") != str(dim):
            raise ValueError(f"features must have dimension {self._get('dim')}, that of the gallery, got {dim}")

    def _everything(self) -> Iterator[StoredRow]:
        query = (
            f"SELECT name, t.id, source, checksum, feature FROM {self._templates} t "
            f"JOIN {self._identities} i ON i.id = identity ORDER BY t.id"
        )
        with self._db.cursor(name="everything", binary=True) as cursor:
            cursor.itersize = BATCH
            for name, number, source, checksum, feature in cursor.execute(query):
                yield StoredRow(name, number, source, checksum, _array(feature))

    def _get(self, key: str) -> str | None:
        row = self._one(f"SELECT value FROM {self._meta} WHERE key = %s", key)
        return None if row is None else row[0]

    def _put(self, key: str, value: str | None) -> None:
        query = f"INSERT INTO {self._meta} VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value"
        self._db.execute(query, (key, value))

    def _one(self, query: str, *values: object) -> Any:
        return self._db.execute(query, values).fetchone()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock, failing_clearly(self.location), self._db.transaction():
            yield


def _ranked(probe: Float[Tensor, "d"], found: Sequence[tuple[str, int, np.ndarray]], k: int) -> list[tuple[str, float]]:
    """The ``k`` best identities of the templates found, by cosines in float64; the template enrolled first among equals."""
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


def _array(feature: Any) -> Float[np.ndarray, "d"]:
    """A vector as psycopg gives it, in memory of its own."""
    return np.array(feature if isinstance(feature, np.ndarray) else feature.to_numpy(), dtype=np.float32)
