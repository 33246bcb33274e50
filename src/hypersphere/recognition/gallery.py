"""Known identities in one SQLite file: enrol, verify, identify with rejection of strangers, remove, list."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from ..evaluation.roc import threshold_at_far
from ..files import checksum
from ..geometry import cosine
from ._store import connect, decode, encode
from .search import search


class Match(NamedTuple):
    """An identity and the cosine of its best template; ``accepted`` says whether that reaches the threshold."""

    identity: str
    score: float
    accepted: bool


class Gallery:
    """Identities with one or more templates each, kept in ``path``.

    Every change is one transaction: when a method returns, the change is on disk, and a process killed before that
    leaves nothing of it. Any number of processes may read while one writes. ``model``, a module or its
    :func:`fingerprint`, is remembered when the gallery is made; another model's features are refused. Without it a
    gallery of a fingerprinted model can only be listed and have identities removed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Gallery(f"{folder}/people.db") as gallery:
    ...     _ = gallery.enrol("ada", torch.tensor([[1.0, 0.0], [0.9, 0.1]]))
    ...     _ = gallery.enrol("bob", torch.tensor([0.0, 1.0]))
    ...     gallery.identify(torch.tensor([[2.0, 0.1]]), threshold=0.8)[0][0].identity, gallery.list()
    ('ada', {'ada': 2, 'bob': 1})
    """

    def __init__(self, path: str | Path, model: nn.Module | str | None = None, *, create: bool = True):
        given = _fingerprint(model) if isinstance(model, nn.Module) else model
        self._db, self._cache = (
            connect(Path(path), create, given),
            _Templates(-1, [], torch.empty(0, 0), torch.empty(0, dtype=torch.long)),
        )
        try:
            with self._reading():
                kept = self._get("fingerprint")
            if given is not None and given != kept:
                raise ValueError(
                    f"the gallery {path} holds features of model {_short(kept)}, got features of model {_short(given)}"
                )
        except BaseException:
            self.close()
            raise
        self.path, self.fingerprint, self._anonymous = Path(path), kept, given is None and kept is not None

    def enrol(
        self, identity: str, features: Float[Tensor, "*n d"], sources: Sequence[str] | None = None
    ) -> Sequence[int]:
        """Add templates ``(d,)`` or ``(n, d)`` of an identity, new or known; their numbers. On disk when this returns."""
        rows = self._check(features)
        if not identity:
            raise ValueError("identity must be a name, got an empty string")
        sources = [""] * len(rows) if sources is None else sources
        if len(sources) != len(rows):
            raise ValueError(f"sources must name each of {len(rows)} features, got {len(sources)}")
        if not (rows != 0).any(1).all():
            raise ValueError("features must have a direction, got a row of zeros")
        with self._writing():
            if self._get("dim") is None:
                self._set("dim", rows.shape[1])
            self._check_dim(rows)
            self._db.execute("INSERT INTO identities(name) VALUES (?) ON CONFLICT DO NOTHING", (identity,))
            (owner,) = self._db.execute("SELECT id FROM identities WHERE name = ?", (identity,)).fetchone()
            statement = "INSERT INTO templates(identity, source, feature) VALUES (?, ?, ?)"
            return [
                int(self._db.execute(statement, (owner, source, encode(row))).lastrowid or 0)
                for source, row in zip(sources, rows, strict=True)
            ]

    def remove(self, identity: str) -> int:
        """Forget an identity; how many templates it had. An unknown one is a ``ValueError``."""
        with self._writing():
            count = self._db.execute(
                "DELETE FROM templates WHERE identity = (SELECT id FROM identities WHERE name = ?)", (identity,)
            ).rowcount
            if not self._db.execute("DELETE FROM identities WHERE name = ?", (identity,)).rowcount:
                raise ValueError(f"identity {identity!r} is not in the gallery")
        return count

    def list(self) -> dict[str, int]:
        """Identities in alphabetical order, with the number of their templates."""
        query = (
            "SELECT name, COUNT(templates.id) FROM identities LEFT JOIN templates "
            "ON identity = identities.id GROUP BY name ORDER BY name"
        )
        with self._reading():
            return dict(self._db.execute(query).fetchall())

    def calibrate(self, scores: Shaped[Tensor, "..."], same: Shaped[Tensor, "..."], far: float) -> float:
        """Set the threshold to accept at most ``far`` of the different pairs among calibration pairs, and keep it in the file."""
        threshold = threshold_at_far(scores, same, far)
        with self._writing():
            self._set("threshold", threshold)
            self._set("far", far)
        return threshold

    @property
    def threshold(self) -> float | None:
        """The threshold of :meth:`calibrate`, None before."""
        value = self._get("threshold")
        return None if value is None else float(value)

    def verify(self, identity: str, features: Float[Tensor, "*n d"], threshold: float | None = None) -> Sequence[Match]:
        """Is each feature of this identity? The score is the cosine of its best template."""
        rows, threshold = self._check(features), self._threshold(threshold)
        templates = self._templates()
        if identity not in templates.names:
            raise ValueError(f"identity {identity!r} is not in the gallery")
        self._check_dim(rows)
        own = templates.features[templates.owner == templates.names.index(identity)]
        best = cosine(rows, own, pairwise=True).amax(1).tolist()
        return [Match(identity, score, score >= threshold) for score in best]

    def identify(
        self, features: Float[Tensor, "*n d"], k: int = 1, threshold: float | None = None
    ) -> Sequence[Sequence[Match]]:
        """The ``k`` likeliest identities of each feature, best first; nobody is ``accepted`` below the threshold.

        Of equal scores the identity enrolled first comes first. Fewer than ``k`` when fewer are enrolled.
        """
        rows, threshold = self._check(features), self._threshold(threshold)
        templates = self._templates()
        if not templates.names:
            raise ValueError(f"the gallery {self.path} is empty: enrol someone first")
        self._check_dim(rows)
        # The best k identities are among the best k·(most templates of one) templates.
        deep = min(len(templates.owner), k * int(templates.owner.bincount().max()))
        scores, found = search(rows, templates.features, deep)
        results = []
        for row_scores, row in zip(scores.tolist(), templates.owner[found].tolist(), strict=True):
            first: dict[int, float] = {}
            for owner, score in zip(row, row_scores, strict=True):
                first.setdefault(owner, score)
            results.append([Match(templates.names[o], s, s >= threshold) for o, s in list(first.items())[:k]])
        return results

    def close(self) -> None:
        """Close the file; the gallery cannot be used afterwards."""
        self._db.close()

    def __enter__(self) -> "Gallery":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __len__(self) -> int:
        return int(self._db.execute("SELECT COUNT(*) FROM identities").fetchone()[0])

    def __contains__(self, identity: str) -> bool:
        return self._db.execute("SELECT 1 FROM identities WHERE name = ?", (identity,)).fetchone() is not None

    def _templates(self) -> "_Templates":
        """All templates, read again only when the file has changed, whoever changed it."""
        with self._reading():
            revision = int(self._get("revision") or 0)
            if revision != self._cache.revision:
                names = self._db.execute("SELECT id, name FROM identities ORDER BY id").fetchall()
                rows = self._db.execute("SELECT identity, feature FROM templates ORDER BY id").fetchall()
                position = {identity: i for i, (identity, _) in enumerate(names)}
                owner = torch.tensor([position[identity] for identity, _ in rows], dtype=torch.long)
                features = decode([blob for _, blob in rows], int(self._get("dim") or 0))
                self._cache = _Templates(revision, [name for _, name in names], features, owner)
        return self._cache

    def _check(self, features: Tensor) -> Float[Tensor, "n d"]:
        if self._anonymous:
            raise ValueError(
                f"the gallery {self.path} holds features of model {_short(self.fingerprint)}: open it with that model"
            )
        rows = features.detach().cpu().float()
        rows = rows[None] if rows.ndim == 1 else rows
        if rows.ndim != 2 or not rows.numel():
            raise ValueError(f"features must have shape (d,) or (n, d), got {tuple(features.shape)}")
        if not rows.isfinite().all():
            raise ValueError("features must be finite, got NaN or infinity")
        return rows

    def _check_dim(self, rows: Tensor) -> None:
        dim = int(self._get("dim") or 0)
        if rows.shape[1] != dim:
            raise ValueError(f"features must have dimension {dim}, that of the gallery, got {rows.shape[1]}")

    def _threshold(self, given: float | None) -> float:
        threshold = self.threshold if given is None else given
        if threshold is None:
            raise ValueError("threshold must be given, or the gallery calibrated with pairs and a false accept rate")
        return threshold

    def _get(self, key: str) -> str | None:
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def _set(self, key: str, value: object) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO meta(key, value) VALUES (?, ?)", (key, None if value is None else str(value))
        )

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction, all or nothing; it takes the write lock at once, so that two writers queue instead of failing."""
        with _transaction(self._db, "BEGIN IMMEDIATE"):
            yield
            self._set("revision", int(self._get("revision") or 0) + 1)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """One snapshot for several statements."""
        with _transaction(self._db, "BEGIN"):
            yield


class _Templates(NamedTuple):
    revision: int
    names: Sequence[str]
    features: Float[Tensor, "t d"]
    owner: Int[Tensor, "t"]


@contextmanager
def _transaction(db: sqlite3.Connection, begin: str) -> Iterator[None]:
    try:
        db.execute(begin)
        try:
            yield
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")
    except sqlite3.Error as error:
        raise OSError(f"the gallery cannot be used: {error}") from error


def _short(fingerprint: str | None) -> str:
    return "unknown" if fingerprint is None else fingerprint[:12]


def _fingerprint(model: nn.Module) -> str:
    known = getattr(model, "fingerprint", None)
    return known if isinstance(known, str) else checksum({}, model.state_dict())
