"""Albums: photographs grouped by identity in one file, with names, corrections, history and undo."""

import contextlib
import json
import math
import os
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from .._extras import require
from ..data.errors import DataError
from ..data.loader import ahead
from ..data.preprocessing import Prepared, eight_bit_pixels
from ..data.sources import Source, open_source
from ..evaluation.score_calibration import LogisticCalibration
from ..geometry import normalize
from ..models.network import evaluation_mode
from .embedder import Embedder
from .gallery import Gallery
from .grouping import DEFAULT_PRIOR, UNASSIGNED, Constraints, group_features, membership
from .stores import normalize_name
from .stores.sqlite_database import LOCK_SECONDS

VERSION = 1
APPLICATION = 0x68797061  # PRAGMA application_id, "hypa"
PHOTOGRAPHS_PER_TRANSACTION = 32
THUMBNAIL_SIDE = 128
THUMBNAIL_MARGIN = 0.35  # around a face, in parts of its box

SCHEMA = """
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
CREATE INDEX before_a_step ON before(step);
CREATE TRIGGER sample_changed AFTER UPDATE OF member, confirmed ON samples
  WHEN old.member IS NOT new.member OR old.confirmed <> new.confirmed
  BEGIN INSERT INTO before VALUES ((SELECT MAX(id) FROM history), 'sample', old.id, old.member, old.confirmed); END;
CREATE TRIGGER group_made AFTER INSERT ON groups
  BEGIN INSERT INTO before VALUES ((SELECT MAX(id) FROM history), 'group made', new.id, NULL, NULL); END;
CREATE TRIGGER group_changed AFTER UPDATE ON groups
  BEGIN INSERT INTO before VALUES ((SELECT MAX(id) FROM history), 'group', old.id, old.name, old.confirmed); END;
CREATE TRIGGER group_gone AFTER DELETE ON groups
  BEGIN INSERT INTO before VALUES ((SELECT MAX(id) FROM history), 'group gone', old.id, old.name, old.confirmed); END;
CREATE TRIGGER rejection_made AFTER INSERT ON rejections
  BEGIN INSERT INTO before VALUES ((SELECT MAX(id) FROM history), 'rejection made', new.sample, new.identity, NULL); END;
CREATE TRIGGER rejection_gone AFTER DELETE ON rejections
  BEGIN INSERT INTO before VALUES ((SELECT MAX(id) FROM history), 'rejection gone', old.sample, old.identity, NULL); END
"""
_STATEMENTS = [part.strip() for part in SCHEMA.replace("; END", ";\x00END").split(";\n")]
_INVERSES = {
    "sample": "UPDATE samples SET member = ?2, confirmed = ?3 WHERE id = ?1",
    "group made": "DELETE FROM groups WHERE id = ?1",
    "group": "UPDATE groups SET name = ?2, confirmed = ?3 WHERE id = ?1",
    "group gone": "INSERT INTO groups (id, name, confirmed) VALUES (?1, ?2, ?3)",
    "rejection made": "DELETE FROM rejections WHERE sample = ?1 AND identity = ?2",
    "rejection gone": "INSERT OR IGNORE INTO rejections VALUES (?1, ?2)",
}


class Sample(NamedTuple):
    """A face, a whole picture or a recording in an album.

    >>> Sample(7, "/photos/party.jpg", (10.0, 20.0, 50.0, 70.0), 2, 0.93).group
    2
    """

    id: int
    path: str
    """the photograph it was found in; empty for a template of a gallery"""
    box: tuple[float, ...] | None
    group: int | None
    probability: float
    """that it belongs to its group; 1 if the user said so, 0 if it is in none"""


class Group(NamedTuple):
    """Samples that show one identity.

    >>> Group(2, "ada", 31, 0.02, None, 0.0).name
    'ada'
    """

    id: int
    name: str | None
    size: int
    doubt: float
    """the probability that its least certain member does not belong, or that it is the same identity as another group"""
    similar: int | None
    """the group that is most likely the same identity"""
    similar_probability: float


class Added(NamedTuple):
    """What :meth:`Album.add` did.

    >>> Added(photographs=2, samples=3, known=0, problems={}).samples
    3
    """

    photographs: int
    samples: int
    known: int
    """photographs that the album had already"""
    problems: dict[str, str]
    """photographs that could not be used, with the reason"""


class Album:
    """Photographs grouped by identity: one SQLite file, and a folder of thumbnails beside it.

    Every change is one transaction with an entry in the history, and is on disk when the method returns. A process killed at
    any moment loses nothing that was acknowledged; adding photographs again continues where it ended.

    A group that has a name, or that the user corrected, is fixed: adding photographs may add members to it, and never takes
    one away, splits it or merges it with another fixed group. Other groups, and samples that are in none, are grouped anew
    whenever photographs arrive. Two faces of one photograph are never put into one group.

    Args:
        path: The file. The thumbnails are in the folder with ``.thumbnails`` appended.
        create: Whether to create an album that is missing.

    Raises:
        ValueError: If there is no such album, or the file is something else.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Album(f"{folder}/party.album") as album:
    ...     ids = album.add_features(torch.tensor([[1.0, 0.0], [0.99, 0.1], [0.0, 1.0]]), ["1.jpg", "2.jpg", "3.jpg"])
    ...     album.group(LogisticCalibration(slope=30.0, offset=-15.0))
    ...     _ = album.name(album.groups()[0].id, "ada")
    ...     [(group.name, group.size) for group in album.groups()], len(album.unassigned())
    ([('ada', 2)], 1)
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True):
        self.path = Path(path)
        self.thumbnails = self.path.with_name(self.path.name + ".thumbnails")
        self._db = _connect(self.path, create)
        self._rated: tuple[tuple[int, int], list[Group], dict[int, float]] | None = None

    def __repr__(self) -> str:
        """Return the place and the size."""
        try:
            groups, named = self._one("SELECT COUNT(*), COUNT(name) FROM groups")
            (samples,) = self._one("SELECT COUNT(*) FROM samples")
        except (sqlite3.Error, OSError):
            return f"Album({str(self.path)!r}, closed)"
        return f"Album({str(self.path)!r}: {samples} samples, {groups} groups, {named} named)"

    def add(
        self,
        photographs: Any,
        embedder: Embedder,
        *,
        calibration: LogisticCalibration,
        prior: float = DEFAULT_PRIOR,
        workers: int = 1,
        progress: Callable[[int, int], None] | None = None,
    ) -> Added:
        """Find and embed the samples of photographs that are new, then group.

        A photograph is known by its path; one whose size or time of change differs is read again. Every 32 photographs are
        one transaction, so an interrupted call is continued by the same call.

        Args:
            photographs: Anything that :func:`hypersphere.data.open_source` takes. Labels do not matter.
            embedder: Finds the samples (all faces of a photograph for a face embedder, else the whole picture) and computes
                their features. An album holds features of one embedder.
            calibration: The log-odds of two features with a given cosine; see
                :func:`~hypersphere.recognition.grouping_calibration.find_calibration`.
            prior: See :func:`~hypersphere.recognition.grouping.group_features`.
            workers: Threads that read photographs and find faces ahead of the network.
            progress: Called with the number of photographs done and of all.

        Raises:
            ValueError: If the album holds features of another embedder, or the photographs cannot be opened.
        """
        self._check_model(embedder.fingerprint)
        source = open_source(photographs, identities=1, loose="keep")
        known = dict(self._db.execute("SELECT path, state FROM photographs"))
        paths = [_full_path(record.name) for record in source.records]
        states = [_file_state(path) for path in paths]
        new = [i for i, path in enumerate(paths) if path not in known or known[path] != states[i]]
        blocks = [new[i : i + PHOTOGRAPHS_PER_TRANSACTION] for i in range(0, len(new), PHOTOGRAPHS_PER_TRANSACTION)]
        found, problems, done = 0, {}, 0

        def read(block: list[int]) -> list[tuple[int, list[_Found] | str]]:
            return [(i, _find_samples(source, i, embedder)) for i in block]

        for block in ahead(read, blocks, workers):
            entries = []
            for i, samples in block:
                if isinstance(samples, str):
                    problems[paths[i]] = samples
                entries.append((paths[i], states[i], samples))
            found += self._store_block(entries, embedder)
            done += len(block)
            if progress is not None:
                progress(done, len(new))
        self.group(calibration, prior=prior)
        return Added(len(new) - len(problems), found, len(paths) - len(new), problems)

    def add_features(
        self, features: Float[Tensor, "n d"], photographs: Sequence[str], boxes: Sequence[Any] | None = None
    ) -> list[int]:
        """Add samples whose features are known already, and return their numbers. Call :meth:`group` afterwards.

        Args:
            features: One row per sample.
            photographs: The photograph of each sample.
            boxes: (x_1, y_1, x_2, y_2) of each sample in its photograph, or None.
        """
        if len(photographs) != len(features) or (boxes is not None and len(boxes) != len(features)):
            raise ValueError(f"photographs and boxes must have one entry for each of {len(features)} features")
        ids = []
        with self._step("add samples"):
            for i, row in enumerate(features):
                number = self._photograph(photographs[i], "", None)
                ids.append(self._insert(number, None if boxes is None else boxes[i], row))
        return ids

    def add_gallery(self, gallery: Gallery) -> int:
        """Take over the people of a gallery as named groups, so that their photographs get their names.

        Args:
            gallery: A gallery of features of the same embedder.

        Returns:
            How many people were new to the album.
        """
        self._check_model(gallery.fingerprint)
        known = {name for (name,) in self._db.execute("SELECT name FROM groups WHERE name IS NOT NULL")}
        templates = gallery.templates()
        rows: dict[str, list[int]] = defaultdict(list)
        for i, name in enumerate(templates.identities):
            if name not in known:
                rows[name].append(i)
        with self._step(f"take over {len(rows)} people of a gallery"):
            for name, own in rows.items():
                (group,) = self._one("INSERT INTO groups (name, confirmed) VALUES (?, 1) RETURNING id", name)
                for row in templates.features[own]:
                    sample = self._insert(None, None, row)
                    self._db.execute("UPDATE samples SET member = ?, confirmed = 1 WHERE id = ?", (group, sample))
        return len(rows)

    def group(self, calibration: LogisticCalibration, *, prior: float = DEFAULT_PRIOR) -> None:
        """Group all samples again; fixed groups keep their members, and others their numbers where they persist.

        Args:
            calibration: The log-odds of two features with a given cosine. It is stored for :meth:`groups`.
            prior: See :func:`~hypersphere.recognition.grouping.group_features`.
        """
        with self._step("group"):
            table = self._table()
            if not len(table.ids):
                return
            confirmed = {group for (group,) in self._db.execute("SELECT id FROM groups WHERE confirmed")}
            fixed = [group if group in confirmed else UNASSIGNED for group in table.groups]
            place = {number: i for i, number in enumerate(table.ids)}
            rejected = self._db.execute("SELECT sample, identity FROM rejections").fetchall()
            forbidden = {(place[s], g) for s, g in rejected if s in place and g in confirmed}
            constraints = Constraints(table.photographs, fixed, forbidden)
            found = group_features(table.features, calibration, constraints, prior=prior).tolist()
            self._assign(table, found, confirmed)
            values = {"slope": calibration.slope, "offset": calibration.offset, "prior": prior}
            self._put({key: repr(float(value)) for key, value in values.items()})

    def groups(self) -> list[Group]:
        """Return all groups, the most doubtful first."""
        return list(self._rate()[0])

    def members(self, group: int) -> list[Sample]:
        """Return the samples of a group, the least certain first.

        Raises:
            ValueError: If there is no such group.
        """
        self._check_groups([group])
        return sorted(self._samples("WHERE s.member = ?", group), key=lambda sample: (sample.probability, sample.id))

    def unassigned(self) -> list[Sample]:
        """Return the samples that are in no group."""
        return self._samples("WHERE s.member IS NULL")

    def name(self, group: int, name: str | None) -> int:
        """Name a group, which fixes it; None takes the name away.

        If another group has the name, the two are merged.

        Returns:
            The number of the group that has the name now.

        Raises:
            ValueError: If there is no such group, or the name cannot be used.
        """
        self._check_groups([group])
        text = None if name is None else normalize_name(name.strip())
        other = None if text is None else self._one_or_none("SELECT id FROM groups WHERE name = ?", text)
        if other is not None and other[0] != group:
            return self.merge([other[0], group])
        with self._step(f"name group {group} {text!r}" if text is not None else f"take the name of group {group}"):
            self._db.execute("UPDATE groups SET name = ?, confirmed = 1 WHERE id = ?", (text, group))
            self._db.execute("UPDATE samples SET confirmed = 1 WHERE member = ?", (group,))
        return group

    def confirm(self, group: int) -> None:
        """Confirm that a group is right, which fixes it."""
        self._check_groups([group])
        with self._step(f"confirm group {group}"):
            self._db.execute("UPDATE groups SET confirmed = 1 WHERE id = ?", (group,))
            self._db.execute("UPDATE samples SET confirmed = 1 WHERE member = ?", (group,))

    def merge(self, groups: Sequence[int]) -> int:
        """Merge groups that show one identity. The first group keeps its number, and the first name is kept.

        Returns:
            The number of the merged group.

        Raises:
            ValueError: If fewer than two groups are given, or one does not exist.
        """
        chosen = list(dict.fromkeys(groups))
        if len(chosen) < 2:
            raise ValueError(f"merge needs at least two groups, got {len(chosen)}")
        names = self._check_groups(chosen)
        kept, rest = chosen[0], chosen[1:]
        name = next((names[group] for group in chosen if names[group] is not None), None)
        with self._step(f"merge groups {', '.join(map(str, chosen))}"):
            for group in rest:
                self._db.execute("UPDATE samples SET member = ? WHERE member = ?", (kept, group))
                for (sample,) in self._db.execute(
                    "SELECT sample FROM rejections WHERE identity = ?", (group,)
                ).fetchall():
                    self._db.execute("INSERT OR IGNORE INTO rejections VALUES (?, ?)", (sample, kept))
                self._db.execute("DELETE FROM rejections WHERE identity = ?", (group,))
                self._db.execute("DELETE FROM groups WHERE id = ?", (group,))
            own = self._db.execute(
                "SELECT r.sample FROM rejections r JOIN samples s ON s.id = r.sample WHERE r.identity = ? AND s.member = ?",
                (kept, kept),
            )
            for (sample,) in own.fetchall():  # the user now says otherwise
                self._db.execute("DELETE FROM rejections WHERE sample = ? AND identity = ?", (sample, kept))
            self._db.execute("UPDATE groups SET name = ?, confirmed = 1 WHERE id = ?", (name, kept))
            self._db.execute("UPDATE samples SET confirmed = 1 WHERE member = ?", (kept,))
        return kept

    def split(self, samples: Sequence[int]) -> int:
        """Split samples of another identity off a group into a fixed group of their own.

        Returns:
            The number of the new group.

        Raises:
            ValueError: If the samples are not some, but not all, members of one group.
        """
        chosen = list(dict.fromkeys(samples))
        homes = {self._home(sample) for sample in chosen}
        group = next(iter(homes), None)
        if len(homes) != 1 or group is None:
            raise ValueError("split needs samples of one group")
        (size,) = self._one("SELECT COUNT(*) FROM samples WHERE member = ?", group)
        if len(chosen) >= size:
            raise ValueError(f"split must leave samples in group {group}, got all {size} of them")
        with self._step(f"split {len(chosen)} samples from group {group}"):
            (new,) = self._one("INSERT INTO groups (confirmed) VALUES (1) RETURNING id")
            for sample in chosen:
                self._db.execute("UPDATE samples SET member = ?, confirmed = 1 WHERE id = ?", (new, sample))
                self._db.execute("INSERT OR IGNORE INTO rejections VALUES (?, ?)", (sample, group))
            self._db.execute("UPDATE groups SET confirmed = 1 WHERE id = ?", (group,))
        return int(new)

    def reject(self, sample: int) -> None:
        """Remove a sample that does not show the person of its group. It is never put back into this group.

        Raises:
            ValueError: If there is no such sample, or it is in no group.
        """
        group = self._home(sample)
        if group is None:
            raise ValueError(f"sample {sample} is in no group")
        with self._step(f"sample {sample} is not group {group}"):
            self._db.execute("UPDATE samples SET member = NULL, confirmed = 0 WHERE id = ?", (sample,))
            self._db.execute("INSERT OR IGNORE INTO rejections VALUES (?, ?)", (sample, group))
            self._db.execute("UPDATE groups SET confirmed = 1 WHERE id = ?", (group,))
            if not self._one("SELECT COUNT(*) FROM samples WHERE member = ?", group)[0]:
                self._db.execute("DELETE FROM groups WHERE id = ?", (group,))

    def assign(self, sample: int, group: int) -> None:
        """Assign a sample to a group.

        Raises:
            ValueError: If there is no such sample or group.
        """
        self._check_groups([group])
        before = self._home(sample)
        with self._step(f"sample {sample} is group {group}"):
            self._db.execute("UPDATE samples SET member = ?, confirmed = 1 WHERE id = ?", (group, sample))
            self._db.execute("DELETE FROM rejections WHERE sample = ? AND identity = ?", (sample, group))
            self._db.execute("UPDATE groups SET confirmed = 1 WHERE id = ?", (group,))
            if before is not None and not self._one("SELECT COUNT(*) FROM samples WHERE member = ?", before)[0]:
                self._db.execute("DELETE FROM groups WHERE id = ?", (before,))

    def undo(self) -> str | None:
        """Undo the last step that changed something and was not undone yet.

        Undoing the grouping of new photographs leaves their samples in no group. Samples themselves stay.

        Returns:
            What was taken back, None if there is nothing.
        """
        with _transaction(self._db):
            found = self._one_or_none(
                "SELECT id, action FROM history h WHERE NOT undone AND EXISTS "
                "(SELECT 1 FROM before b WHERE b.step = h.id) ORDER BY id DESC LIMIT 1"
            )
            if found is None:
                return None
            step, action = found
            rows = self._db.execute(
                "SELECT kind, a, b, c FROM before WHERE step = ? ORDER BY rowid DESC", (step,)
            ).fetchall()
            # The inverse statements run as a step of their own, whose records are then dropped: undo is not undone.
            (undoing,) = self._one(
                "INSERT INTO history (at, action, undone) VALUES (?, ?, 1) RETURNING id", _now(), f"undo: {action}"
            )
            for kind, a, b, c in rows:
                statement = _INVERSES[kind]
                self._db.execute(statement, (a, b, c)[: statement.count("?")])
            self._db.execute("UPDATE history SET undone = 1 WHERE id = ?", (step,))
            self._db.execute("DELETE FROM before WHERE step IN (?, ?)", (step, undoing))
        return str(action)

    def history(self) -> list[tuple[str, str, bool]]:
        """Return every step: when, what, and whether it was taken back; the oldest first."""
        rows = self._db.execute("SELECT at, action, undone FROM history ORDER BY id")
        return [(at, action, bool(undone)) for at, action, undone in rows]

    def samples(self) -> list[Sample]:
        """Return all samples that were found in photographs."""
        return self._samples("WHERE s.photograph IS NOT NULL")

    def features(self, samples: Sequence[int]) -> Float[Tensor, "n d"]:
        """Return the features of samples by their numbers."""
        rows = [self._one("SELECT feature FROM samples WHERE id = ?", sample)[0] for sample in samples]
        return torch.stack([_from_blob(row) for row in rows])

    def problems(self) -> dict[str, str]:
        """Return the photographs that could not be used, with the reason."""
        return dict(self._db.execute("SELECT path, problem FROM photographs WHERE problem IS NOT NULL"))

    def check(self) -> list[str]:
        """Verify the file and the links between its tables; return the problems, none if all is well."""
        found = [row[0] for row in self._db.execute("PRAGMA integrity_check") if row[0] != "ok"]
        (lost,) = self._one(
            "SELECT COUNT(*) FROM samples WHERE member IS NOT NULL AND member NOT IN (SELECT id FROM groups)"
        )
        (empty,) = self._one(
            "SELECT COUNT(*) FROM groups WHERE id NOT IN (SELECT member FROM samples WHERE member IS NOT NULL)"
        )
        found += [f"{lost} samples are in groups that do not exist"] * bool(lost)
        return found + [f"{empty} groups have no sample"] * bool(empty)

    def thumbnail(self, sample: int) -> Path:
        """Return where the thumbnail of a sample is."""
        return self.thumbnails / f"{int(sample)}.jpg"

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of the embedder whose features the album holds."""
        return self._get("fingerprint")

    @property
    def revision(self) -> int:
        """A number that grows with every step."""
        return int(self._one("SELECT COALESCE(MAX(id), 0) FROM history")[0])

    def close(self) -> None:
        """Close the album, which cannot be used afterwards."""
        self._db.close()

    def __enter__(self) -> "Album":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _check_model(self, fingerprint: str | None) -> None:
        stored = self.fingerprint
        if stored is None and fingerprint is not None:
            with _transaction(self._db):
                self._put({"fingerprint": fingerprint})
        elif stored != fingerprint:
            raise ValueError(
                f"the album {self.path} holds features of model {(stored or 'unknown')[:12]}, got features of model "
                f"{(fingerprint or 'unknown')[:12]}: use the same embedder, or make another album"
            )

    @contextlib.contextmanager
    def _step(self, action: str) -> Iterator[None]:
        """Run one transaction with one entry in the history."""
        with _transaction(self._db):
            self._db.execute("INSERT INTO history (at, action) VALUES (?, ?)", (_now(), action))
            yield

    def _store_block(self, entries: "list[tuple[str, str, list[_Found] | str]]", embedder: Embedder) -> int:
        tensors = [sample.tensor for _, _, found in entries if not isinstance(found, str) for sample in found]
        with torch.no_grad(), evaluation_mode(embedder.network):
            rows = iter(embedder.of_windows(tensors).detach().cpu().float() if tensors else torch.empty(0, 1))
        self.thumbnails.mkdir(mode=0o700, exist_ok=True)
        count = 0
        with self._step(f"add {len(entries)} photographs"):
            for path, state, found in entries:
                number = self._photograph(path, state, found if isinstance(found, str) else None)
                for sample in [] if isinstance(found, str) else found:
                    row = next(rows)
                    if not row.isfinite().all() or not (row != 0).any():
                        continue
                    new = self._insert(number, sample.box, row)
                    count += 1
                    # Before the commit: a kill may leave a thumbnail without a sample, never the other way round. Numbers
                    # are not used twice once committed, so such a thumbnail is overwritten.
                    if sample.picture is not None:
                        sample.picture.save(self.thumbnail(new), "JPEG", quality=85)
        return count

    def _photograph(self, path: str, state: str, problem: str | None) -> int:
        """Return the number of a photograph. One that has changed loses its samples, which are found again."""
        known = self._one_or_none("SELECT id, state FROM photographs WHERE path = ?", path)
        if known is None:
            statement = "INSERT INTO photographs (path, state, problem) VALUES (?, ?, ?) RETURNING id"
            return int(self._one(statement, path, state, problem)[0])
        if known[1] != state:
            for (sample,) in self._db.execute("SELECT id FROM samples WHERE photograph = ?", (known[0],)).fetchall():
                self._forget_sample(sample)
            self._db.execute("UPDATE photographs SET state = ?, problem = ? WHERE id = ?", (state, problem, known[0]))
        return int(known[0])

    def _forget_sample(self, sample: int) -> None:
        group = self._home(sample)
        self._db.execute("DELETE FROM samples WHERE id = ?", (sample,))
        self._db.execute("DELETE FROM rejections WHERE sample = ?", (sample,))
        self._db.execute("DELETE FROM before WHERE a = ? AND (kind = 'sample' OR kind LIKE 'rejection%')", (sample,))
        if group is not None and not self._one("SELECT COUNT(*) FROM samples WHERE member = ?", group)[0]:
            self._db.execute("DELETE FROM groups WHERE id = ?", (group,))

    def _insert(self, photograph: int | None, box: Any, row: Float[Tensor, "d"]) -> int:
        statement = "INSERT INTO samples (photograph, box, feature) VALUES (?, ?, ?) RETURNING id"
        text = None if box is None else json.dumps([round(float(value), 2) for value in box])
        return int(self._one(statement, photograph, text, row.detach().cpu().float().numpy().tobytes())[0])

    def _assign(self, table: "_Table", found: Sequence[int], confirmed: set[int]) -> None:
        """Write the groups that were found. A free group keeps the number that most of its members had."""
        parts: dict[int, list[int]] = defaultdict(list)
        for i, number in enumerate(found):
            if number >= 0:
                parts[number].append(i)
        final: dict[int, int] = {number: number for number in parts if number in confirmed}
        used = set(confirmed)
        for number, part in sorted(parts.items(), key=lambda item: -len(item[1])):
            if number in final:
                continue
            votes = Counter(table.groups[i] for i in part if table.groups[i] >= 0 and table.groups[i] not in used)
            if votes:
                final[number] = votes.most_common(1)[0][0]
            else:
                final[number] = int(self._one("INSERT INTO groups (confirmed) VALUES (0) RETURNING id")[0])
            used.add(final[number])
        for i, number in enumerate(found):
            group = final[number] if number >= 0 else None
            if (table.groups[i] if table.groups[i] >= 0 else None) != group:
                self._db.execute("UPDATE samples SET member = ?, confirmed = 0 WHERE id = ?", (group, table.ids[i]))
        self._db.execute(
            "DELETE FROM groups WHERE id NOT IN (SELECT member FROM samples WHERE member IS NOT NULL) AND NOT confirmed"
        )

    def _table(self) -> "_Table":
        rows = self._db.execute("SELECT id, photograph, member, confirmed, feature FROM samples ORDER BY id").fetchall()
        features = torch.stack([_from_blob(row[4]) for row in rows]) if rows else torch.empty(0, 1)
        return _Table(
            [row[0] for row in rows],
            [UNASSIGNED if row[1] is None else row[1] for row in rows],
            [UNASSIGNED if row[2] is None else row[2] for row in rows],
            [bool(row[3]) for row in rows],
            features,
        )

    def _rate(self) -> tuple[list[Group], dict[int, float]]:
        """Return the groups by doubt, and the probability of each sample to belong to its group; computed once per step."""
        state = (self.revision, int(self._one("SELECT COUNT(*) FROM samples")[0]))
        if self._rated is None or self._rated[0] != state:
            self._rated = (state, *self._compute_rates())
        return self._rated[1], self._rated[2]

    def _compute_rates(self) -> tuple[list[Group], dict[int, float]]:
        table, slope = self._table(), self._get("slope")
        calibration = LogisticCalibration(float(slope or 0), float(self._get("offset") or 0))
        prior = float(self._get("prior") or DEFAULT_PRIOR)
        numbers = torch.tensor(table.groups, dtype=torch.long)
        sure = membership(table.features, numbers, calibration, prior=prior)
        sure[torch.tensor(table.confirmed, dtype=torch.bool)] = 1.0
        known = {group: (name, bool(fixed)) for group, name, fixed in self._db.execute("SELECT * FROM groups")}
        if not known:
            return [], dict(zip(table.ids, sure.tolist(), strict=True))
        order = sorted(known)
        place = {group: i for i, group in enumerate(order)}
        weakest, sizes = torch.ones(len(order), dtype=torch.double), torch.zeros(len(order), dtype=torch.double)
        sums = torch.zeros(len(order), table.features.shape[1], dtype=torch.double)
        at = torch.tensor([place.get(group, -1) for group in table.groups])
        member = at >= 0
        weakest.scatter_reduce_(0, at[member], sure[member], "amin")
        sizes.index_add_(0, at[member], torch.ones(int(member.sum()), dtype=torch.double))
        sums.index_add_(0, at[member], normalize(table.features.double())[member])
        fixed = torch.tensor([known[group][1] for group in order])
        named = torch.tensor([known[group][0] is not None for group in order])
        similar, chance = _most_similar(sums / sizes.clamp_min(1)[:, None], named, calibration, prior)
        rated = []
        for i, group in enumerate(order):
            if not sizes[i]:
                continue
            other = int(similar[i])
            doubt = max(1 - float(weakest[i]), float(chance[i]) if not (fixed[i] and fixed[other]) else 0.0)
            pair = (order[other], float(chance[i])) if other >= 0 else (None, 0.0)
            rated.append(Group(group, known[group][0], int(sizes[i]), doubt, *pair))
        rated.sort(key=lambda one: (-one.doubt, -one.size, one.id))
        return rated, dict(zip(table.ids, sure.tolist(), strict=True))

    def _samples(self, where: str, *values: Any) -> list[Sample]:
        sure = self._rate()[1]
        rows = self._db.execute(
            "SELECT s.id, p.path, s.box, s.member FROM samples s LEFT JOIN photographs p ON p.id = s.photograph "
            f"{where} ORDER BY s.id",
            values,
        )
        return [
            Sample(number, path or "", None if box is None else tuple(json.loads(box)), group, sure.get(number, 0.0))
            for number, path, box, group in rows
        ]

    def _check_groups(self, groups: Sequence[int]) -> dict[int, str | None]:
        found = {}
        for group in groups:
            row = self._one_or_none("SELECT name FROM groups WHERE id = ?", group)
            if row is None:
                raise ValueError(f"there is no group {group} in the album")
            found[group] = row[0]
        return found

    def _home(self, sample: int) -> int | None:
        row = self._one_or_none("SELECT member FROM samples WHERE id = ?", sample)
        if row is None:
            raise ValueError(f"there is no sample {sample} in the album")
        return None if row[0] is None else int(row[0])

    def _get(self, key: str) -> str | None:
        row = self._one_or_none("SELECT value FROM meta WHERE key = ?", key)
        return None if row is None else row[0]

    def _put(self, values: dict[str, str]) -> None:
        self._db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", list(values.items()))

    def _one(self, statement: str, *values: Any) -> tuple[Any, ...]:
        found = self._one_or_none(statement, *values)
        assert found is not None
        return found

    def _one_or_none(self, statement: str, *values: Any) -> tuple[Any, ...] | None:
        found = self._db.execute(statement, values).fetchall()
        return found[0] if found else None


class _Table(NamedTuple):
    """All samples, in columns."""

    ids: list[int]
    photographs: list[int]
    groups: list[int]
    confirmed: list[bool]
    features: Float[Tensor, "n d"]


class _Found(NamedTuple):
    """A sample in a photograph: the network's input, its box and its thumbnail."""

    tensor: Tensor
    box: Any
    picture: Any


def _find_samples(source: Source, index: int, embedder: Embedder) -> list[_Found] | str:
    """Return the samples of a photograph, or the reason why it cannot be used."""
    try:
        sample, box = source.sample(index), source.records[index].box
        prepared = embedder.preprocessing.load_all(sample, box)
        shape = embedder.preprocessing.shape
        return [
            _Found(one.windows(shape), one.info.get("box", box), _draw_thumbnail(sample, one, box)) for one in prepared
        ]
    except (DataError, ValueError, OSError) as error:
        return str(error)


def _draw_thumbnail(sample: Any, found: Prepared, box: Any) -> Any:
    """Return a small picture of a sample with some surroundings; None if it is no picture."""
    try:
        pixels = eight_bit_pixels(sample, None)
    except (ValueError, TypeError, AttributeError):  # such as a recording
        return None
    height, width = pixels.shape[-2:]
    left, top, right, bottom = found.info.get("box") or box or (0, 0, width, height)
    if found.info.get("box"):
        side = max(right - left, bottom - top) * (1 + 2 * THUMBNAIL_MARGIN)
        middle = ((left + right) / 2, (top + bottom) / 2)
        left, right, top, bottom = (
            middle[0] - side / 2,
            middle[0] + side / 2,
            middle[1] - side / 2,
            middle[1] + side / 2,
        )
    left, top = max(0, math.floor(left)), max(0, math.floor(top))
    right, bottom = min(width, max(left + 1, math.ceil(right))), min(height, max(top + 1, math.ceil(bottom)))
    part = pixels[..., top:bottom, left:right]
    array = part[:3].permute(1, 2, 0).numpy() if part.shape[0] >= 3 else part[0].numpy()
    image = require("PIL.Image").fromarray(np.ascontiguousarray(array))
    image.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    return image


def _most_similar(
    means: Float[Tensor, "g d"], named: Tensor, calibration: LogisticCalibration, prior: float
) -> tuple[Int[Tensor, "g"], Float[Tensor, "g"]]:
    """Return the most similar other group of each group and the probability of one identity. Two named ones are two people."""
    best, values = torch.full((len(means),), -1), torch.zeros(len(means), dtype=torch.double)
    if len(means) < 2:
        return best, values
    for rows in torch.arange(len(means)).split(1024):
        cosines = means[rows] @ means.T
        cosines[torch.arange(len(rows)), rows] = -torch.inf
        cosines.masked_fill_(named[rows][:, None] & named[None], -torch.inf)
        top, where = cosines.max(1)
        real = top.isfinite()
        best[rows[real]] = where[real]
        values[rows[real]] = calibration.probability(top[real], prior)
    return best, values


def _connect(path: Path, create: bool) -> sqlite3.Connection:
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


def _prepare(db: sqlite3.Connection, path: Path, create: bool) -> None:
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
    db.execute("PRAGMA journal_mode = WAL")  # readers go on while one writes
    db.execute("PRAGMA synchronous = FULL")  # a returned change is on disk, also after a power failure
    db.execute("PRAGMA secure_delete = ON")
    if not tables:
        with _transaction(db):  # one transaction, so that an incomplete file is not opened as an album
            if not db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
                for statement in _STATEMENTS:
                    db.execute(statement.replace("\x00", " "))
                db.execute(f"PRAGMA application_id = {APPLICATION}")
                db.execute(f"PRAGMA user_version = {VERSION}")


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Run a transaction: all or nothing. An error of SQLite becomes an ``OSError`` that says what it was."""
    try:
        db.execute("BEGIN IMMEDIATE")
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
        raise OSError(f"the album cannot be used: {error}") from error


def _from_blob(blob: bytes) -> Float[Tensor, "d"]:
    return torch.from_numpy(np.frombuffer(blob, np.float32).copy())


def _full_path(name: str) -> str:
    """Return the absolute path of a file; what is no file, such as an entry of an archive, keeps its name."""
    return str(Path(name).absolute()) if os.path.exists(name) else name


def _file_state(path: str) -> str:
    """Return size and time of change of a file, by which a changed photograph is noticed."""
    try:
        found = os.stat(path)
    except OSError:
        return ""
    return f"{found.st_size} {found.st_mtime_ns}"


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")
