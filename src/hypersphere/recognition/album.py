"""Albums: photographs grouped by identity in one file, with names, corrections, history and undo."""

import json
import os
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..data.loader import map_ahead
from ..data.sources import open_source
from ..evaluation.score_calibration import LogisticCalibration
from ..geometry import normalize
from ..models.network import evaluation_mode
from .album_database import connect, run_step, undo_last_step
from .album_samples import DetectedSample, absolute_path, detect_samples, read_file_state
from .embedder import Embedder
from .gallery import Gallery
from .grouping import DEFAULT_PRIOR, UNASSIGNED, Constraints, group_features, membership
from .stores import normalize_name
from .stores.sqlite_database import transaction

PHOTOGRAPHS_PER_TRANSACTION = 32


class Sample(NamedTuple):
    """A face, a whole picture or a recording in an album.

    Attributes:
        id: Its number.
        path: Its photograph; empty for a template of a gallery.
        box: (x_1, y_1, x_2, y_2) in the photograph, None for a whole picture.
        group: The number of its group, None if it is in no group.
        probability: The probability that it belongs to its group: 1 if the user confirmed it, 0 without a group.

    >>> Sample(7, "/photos/party.jpg", (10.0, 20.0, 50.0, 70.0), 2, 0.93).group
    2
    """

    id: int
    path: str
    box: tuple[float, ...] | None
    group: int | None
    probability: float


class Group(NamedTuple):
    """Samples that show one identity.

    Attributes:
        id: Its number.
        name: Its name, None if it was not named.
        size: The number of samples.
        doubt: The probability that the least certain member does not belong to it, or that another group shows the same
            identity, whichever is larger.
        similar: The group that most likely shows the same identity.
        similar_probability: The probability that it does.

    >>> Group(2, "ada", 31, 0.02, None, 0.0).name
    'ada'
    """

    id: int
    name: str | None
    size: int
    doubt: float
    similar: int | None
    similar_probability: float


class Added(NamedTuple):
    """The result of :meth:`Album.add`.

    Attributes:
        photographs: The number of photographs added.
        samples: The number of samples found in them.
        known: The number of photographs that the album already had.
        problems: Photographs that could not be used, with the reason.

    >>> Added(photographs=2, samples=3, known=0, problems={}).samples
    3
    """

    photographs: int
    samples: int
    known: int
    problems: dict[str, str]


class Album:
    """Photographs grouped by identity: one SQLite file, and a folder of thumbnails beside it.

    Every change is one transaction with an entry in the history, and is on disk when the method returns. A killed process
    loses no completed change, and adding the same photographs again continues where it stopped.

    Groups that the user named or corrected are fixed: adding photographs may add members to them, but never removes
    members, splits them or merges two of them. All other samples are grouped anew whenever photographs are added.
    Two faces of one photograph are never put into one group.

    Args:
        path: The file. The thumbnails are in a folder of this name with ``.thumbnails`` appended.
        create: Whether to create a missing album.

    Raises:
        ValueError: If the album does not exist, or the file is not an album.

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
        self._db = connect(self.path, create)
        self._ratings: tuple[tuple[int, int], list[Group], dict[int, float]] | None = None

    def __repr__(self) -> str:
        """Return the path and the numbers of samples, groups and named groups."""
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
        """Find and embed the samples of new photographs, then group all samples.

        Photographs are identified by their paths. A photograph whose size or modification time changed is read again. Every
        32 photographs are one transaction; to continue an interrupted call, repeat it.

        Args:
            photographs: Anything that :func:`hypersphere.data.open_source` takes. Labels are ignored.
            embedder: Finds the samples (all faces of a photograph for a face embedder, else the whole picture) and computes
                their features. An album holds features of one embedder.
            calibration: Maps the cosine of two features to log-odds; see
                :func:`~hypersphere.recognition.grouping_calibration.find_calibration`.
            prior: See :func:`~hypersphere.recognition.grouping.group_features`.
            workers: Threads that read photographs and find faces ahead of the network.
            progress: Called with the numbers of finished and of all new photographs.

        Raises:
            ValueError: If the album holds features of another embedder, or the photographs cannot be opened.
        """
        self._check_model(embedder.fingerprint)
        source = open_source(photographs, identities=1, loose="keep")
        known = dict(self._db.execute("SELECT path, state FROM photographs"))
        paths = [absolute_path(record.name) for record in source.records]
        states = [read_file_state(path) for path in paths]
        new = [i for i, path in enumerate(paths) if path not in known or known[path] != states[i]]
        blocks = [new[i : i + PHOTOGRAPHS_PER_TRANSACTION] for i in range(0, len(new), PHOTOGRAPHS_PER_TRANSACTION)]
        count, problems, done = 0, {}, 0

        def read(block: list[int]) -> list[tuple[int, list[DetectedSample] | str]]:
            return [(i, detect_samples(source, i, embedder)) for i in block]

        for block in map_ahead(read, blocks, workers):
            entries = []
            for i, samples in block:
                if isinstance(samples, str):
                    problems[paths[i]] = samples
                entries.append((paths[i], states[i], samples))
            count += self._store_block(entries, embedder)
            done += len(block)
            if progress is not None:
                progress(done, len(new))
        self.group(calibration, prior=prior)
        return Added(len(new) - len(problems), count, len(paths) - len(new), problems)

    def add_features(
        self, features: Float[Tensor, "n d"], photographs: Sequence[str], boxes: Sequence[Any] | None = None
    ) -> list[int]:
        """Add samples by their features, and return their numbers. Call :meth:`group` afterwards.

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
                number = self._register_photograph(photographs[i], "", None)
                ids.append(self._insert_sample(number, None if boxes is None else boxes[i], row))
        return ids

    def add_gallery(self, gallery: Gallery) -> int:
        """Add the identities of a gallery as named groups, so that their photographs get their names.

        Args:
            gallery: A gallery of features of the same embedder.

        Returns:
            The number of identities that were new to the album.
        """
        self._check_model(gallery.fingerprint)
        known = {name for (name,) in self._db.execute("SELECT name FROM groups WHERE name IS NOT NULL")}
        templates = gallery.templates()
        rows: dict[str, list[int]] = defaultdict(list)
        for i, name in enumerate(templates.identities):
            if name not in known:
                rows[name].append(i)
        with self._step(f"add {len(rows)} people from a gallery"):
            for name, indices in rows.items():
                (group,) = self._one("INSERT INTO groups (name, confirmed) VALUES (?, 1) RETURNING id", name)
                for row in templates.features[indices]:
                    sample = self._insert_sample(None, None, row)
                    self._db.execute("UPDATE samples SET member = ?, confirmed = 1 WHERE id = ?", (group, sample))
        return len(rows)

    def group(self, calibration: LogisticCalibration, *, prior: float = DEFAULT_PRIOR) -> None:
        """Group all samples again. Fixed groups keep their members; other groups keep their number if most members remain.

        Args:
            calibration: Maps the cosine of two features to log-odds. It is stored for :meth:`groups`.
            prior: See :func:`~hypersphere.recognition.grouping.group_features`.
        """
        with self._step("group"):
            table = self._read_table()
            if not len(table.ids):
                return
            confirmed = {group for (group,) in self._db.execute("SELECT id FROM groups WHERE confirmed")}
            fixed = [group if group in confirmed else UNASSIGNED for group in table.groups]
            rows = {sample: i for i, sample in enumerate(table.ids)}
            rejected = self._db.execute("SELECT sample, identity FROM rejections").fetchall()
            forbidden = {(rows[sample], group) for sample, group in rejected if sample in rows and group in confirmed}
            constraints = Constraints(table.photographs, fixed, forbidden)
            labels = group_features(table.features, calibration, constraints, prior=prior).tolist()
            self._store_groups(table, labels, confirmed)
            values = {"slope": calibration.slope, "offset": calibration.offset, "prior": prior}
            self._put({key: repr(float(value)) for key, value in values.items()})

    def groups(self) -> list[Group]:
        """Return all groups, the most doubtful first."""
        return list(self._rate_groups()[0])

    def members(self, group: int) -> list[Sample]:
        """Return the samples of a group, the least certain first.

        Raises:
            ValueError: If there is no such group.
        """
        self._check_groups([group])
        members = self._select_samples("WHERE s.member = ?", group)
        return sorted(members, key=lambda sample: (sample.probability, sample.id))

    def unassigned(self) -> list[Sample]:
        """Return the samples that are in no group."""
        return self._select_samples("WHERE s.member IS NULL")

    def name(self, group: int, name: str | None) -> int:
        """Name a group and fix it. None removes the name. If another group has the name, the two are merged.

        Returns:
            The number of the group that has the name now.

        Raises:
            ValueError: If there is no such group, or the name is invalid.
        """
        self._check_groups([group])
        text = None if name is None else normalize_name(name.strip())
        other = None if text is None else self._one_or_none("SELECT id FROM groups WHERE name = ?", text)
        if other is not None and other[0] != group:
            return self.merge([other[0], group])
        with self._step(f"name group {group} {text!r}" if text is not None else f"remove the name of group {group}"):
            self._db.execute("UPDATE groups SET name = ?, confirmed = 1 WHERE id = ?", (text, group))
            self._db.execute("UPDATE samples SET confirmed = 1 WHERE member = ?", (group,))
        return group

    def confirm(self, group: int) -> None:
        """Confirm that a group is correct, and fix it."""
        self._check_groups([group])
        with self._step(f"confirm group {group}"):
            self._db.execute("UPDATE groups SET confirmed = 1 WHERE id = ?", (group,))
            self._db.execute("UPDATE samples SET confirmed = 1 WHERE member = ?", (group,))

    def merge(self, groups: Sequence[int]) -> int:
        """Merge groups that show one identity. The first group keeps its number, and the first name is kept.

        Returns:
            The number of the merged group.

        Raises:
            ValueError: If fewer than two groups are given, or a group does not exist.
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
            # Merging contradicts rejections of samples that are now members, so these rejections are deleted.
            contradicted = self._db.execute(
                "SELECT r.sample FROM rejections r JOIN samples s ON s.id = r.sample WHERE r.identity = ? AND s.member = ?",
                (kept, kept),
            )
            for (sample,) in contradicted.fetchall():
                self._db.execute("DELETE FROM rejections WHERE sample = ? AND identity = ?", (sample, kept))
            self._db.execute("UPDATE groups SET name = ?, confirmed = 1 WHERE id = ?", (name, kept))
            self._db.execute("UPDATE samples SET confirmed = 1 WHERE member = ?", (kept,))
        return kept

    def split(self, samples: Sequence[int]) -> int:
        """Move samples of another identity from a group into a new fixed group.

        Returns:
            The number of the new group.

        Raises:
            ValueError: If the samples are in different groups or in none, or are all members of their group.
        """
        chosen = list(dict.fromkeys(samples))
        groups = {self._find_group(sample) for sample in chosen}
        group = next(iter(groups), None)
        if len(groups) != 1 or group is None:
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
        """Remove a sample that does not show the person of its group. :meth:`group` never puts it back.

        Raises:
            ValueError: If there is no such sample, or it is in no group.
        """
        group = self._find_group(sample)
        if group is None:
            raise ValueError(f"sample {sample} is in no group")
        with self._step(f"sample {sample} is not group {group}"):
            self._db.execute("UPDATE samples SET member = NULL, confirmed = 0 WHERE id = ?", (sample,))
            self._db.execute("INSERT OR IGNORE INTO rejections VALUES (?, ?)", (sample, group))
            self._db.execute("UPDATE groups SET confirmed = 1 WHERE id = ?", (group,))
            self._delete_if_empty(group)

    def assign(self, sample: int, group: int) -> None:
        """Assign a sample to a group.

        Raises:
            ValueError: If there is no such sample or group.
        """
        self._check_groups([group])
        previous = self._find_group(sample)
        with self._step(f"sample {sample} is group {group}"):
            self._db.execute("UPDATE samples SET member = ?, confirmed = 1 WHERE id = ?", (group, sample))
            self._db.execute("DELETE FROM rejections WHERE sample = ? AND identity = ?", (sample, group))
            self._db.execute("UPDATE groups SET confirmed = 1 WHERE id = ?", (group,))
            self._delete_if_empty(previous)

    def undo(self) -> str | None:
        """Undo the last step that changed something and was not undone yet.

        Samples are never removed: undoing the grouping of new photographs leaves their samples without a group.

        Returns:
            The description of the undone step, None if there is nothing to undo.
        """
        return undo_last_step(self._db)

    def history(self) -> list[tuple[str, str, bool]]:
        """Return the time, the description and the undone flag of every step, the oldest first."""
        rows = self._db.execute("SELECT at, action, undone FROM history ORDER BY id")
        return [(at, action, bool(undone)) for at, action, undone in rows]

    def samples(self) -> list[Sample]:
        """Return the samples of all photographs, without the templates of galleries."""
        return self._select_samples("WHERE s.photograph IS NOT NULL")

    def features(self, samples: Sequence[int]) -> Float[Tensor, "n d"]:
        """Return the features of samples, given their numbers."""
        rows = [self._one("SELECT feature FROM samples WHERE id = ?", sample)[0] for sample in samples]
        return torch.stack([_from_blob(row) for row in rows])

    def problems(self) -> dict[str, str]:
        """Return the photographs that could not be used, with the reasons."""
        return dict(self._db.execute("SELECT path, problem FROM photographs WHERE problem IS NOT NULL"))

    def check(self) -> list[str]:
        """Verify the file and the links between its tables; return a list of problems, empty if there are none."""
        problems = [row[0] for row in self._db.execute("PRAGMA integrity_check") if row[0] != "ok"]
        (lost,) = self._one(
            "SELECT COUNT(*) FROM samples WHERE member IS NOT NULL AND member NOT IN (SELECT id FROM groups)"
        )
        (empty,) = self._one(
            "SELECT COUNT(*) FROM groups WHERE id NOT IN (SELECT member FROM samples WHERE member IS NOT NULL)"
        )
        problems += [f"{lost} samples are in groups that do not exist"] * bool(lost)
        return problems + [f"{empty} groups have no sample"] * bool(empty)

    def thumbnail(self, sample: int) -> Path:
        """Return the path of the thumbnail of a sample."""
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
        """Close the album. It cannot be used afterwards."""
        self._db.close()

    def __enter__(self) -> "Album":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _check_model(self, fingerprint: str | None) -> None:
        stored = self.fingerprint
        if stored is None and fingerprint is not None:
            with transaction(self._db, kind="album"):
                self._put({"fingerprint": fingerprint})
        elif stored != fingerprint:
            raise ValueError(
                f"the album {self.path} holds features of model {(stored or 'unknown')[:12]}, got features of model "
                f"{(fingerprint or 'unknown')[:12]}: use the same embedder, or make another album"
            )

    def _step(self, action: str) -> AbstractContextManager[None]:
        return run_step(self._db, action)

    def _store_block(self, entries: list[tuple[str, str, list[DetectedSample] | str]], embedder: Embedder) -> int:
        """Embed and store the samples of photographs; return the number of samples.

        Args:
            entries: Path, file state, and samples or problem of each photograph.
            embedder: Computes the features.
        """
        windows = [sample.windows for _, _, samples in entries if not isinstance(samples, str) for sample in samples]
        with torch.no_grad(), evaluation_mode(embedder.network):
            rows = iter(embedder.of_windows(windows).detach().cpu().float() if windows else torch.empty(0, 1))
        self.thumbnails.mkdir(mode=0o700, exist_ok=True)
        count = 0
        with self._step(f"add {len(entries)} photographs"):
            for path, state, samples in entries:
                photograph = self._register_photograph(path, state, samples if isinstance(samples, str) else None)
                for sample in [] if isinstance(samples, str) else samples:
                    row = next(rows)
                    if not row.isfinite().all() or not (row != 0).any():
                        continue
                    number = self._insert_sample(photograph, sample.box, row)
                    count += 1
                    # The thumbnail is saved before the commit, so a killed process may leave a thumbnail without a sample,
                    # but never a sample without a thumbnail. The next sample gets the same number and overwrites it.
                    if sample.thumbnail is not None:
                        sample.thumbnail.save(self.thumbnail(number), "JPEG", quality=85)
        return count

    def _register_photograph(self, path: str, state: str, problem: str | None) -> int:
        """Return the number of a photograph, inserting it if it is new. The samples of a changed photograph are deleted."""
        known = self._one_or_none("SELECT id, state FROM photographs WHERE path = ?", path)
        if known is None:
            statement = "INSERT INTO photographs (path, state, problem) VALUES (?, ?, ?) RETURNING id"
            return int(self._one(statement, path, state, problem)[0])
        if known[1] != state:
            for (sample,) in self._db.execute("SELECT id FROM samples WHERE photograph = ?", (known[0],)).fetchall():
                self._delete_sample(sample)
            self._db.execute("UPDATE photographs SET state = ?, problem = ? WHERE id = ?", (state, problem, known[0]))
        return int(known[0])

    def _delete_sample(self, sample: int) -> None:
        """Delete a sample, its rejections and its undo records, and its group if it was the last member."""
        group = self._find_group(sample)
        self._db.execute("DELETE FROM samples WHERE id = ?", (sample,))
        self._db.execute("DELETE FROM rejections WHERE sample = ?", (sample,))
        self._db.execute("DELETE FROM before WHERE a = ? AND (kind = 'sample' OR kind LIKE 'rejection%')", (sample,))
        self._delete_if_empty(group)

    def _delete_if_empty(self, group: int | None) -> None:
        if group is not None and not self._one("SELECT COUNT(*) FROM samples WHERE member = ?", group)[0]:
            self._db.execute("DELETE FROM groups WHERE id = ?", (group,))

    def _insert_sample(self, photograph: int | None, box: Any, row: Float[Tensor, "d"]) -> int:
        statement = "INSERT INTO samples (photograph, box, feature) VALUES (?, ?, ?) RETURNING id"
        text = None if box is None else json.dumps([round(float(value), 2) for value in box])
        return int(self._one(statement, photograph, text, row.detach().cpu().float().numpy().tobytes())[0])

    def _store_groups(self, table: "_Table", labels: Sequence[int], confirmed: set[int]) -> None:
        """Store the group of each sample. A group that is not fixed keeps the number that most of its members had.

        Args:
            table: All samples with their previous groups.
            labels: The new label of each sample: the number of a fixed group, another number, or a negative one for none.
            confirmed: The numbers of the fixed groups.
        """
        members: dict[int, list[int]] = defaultdict(list)
        for i, label in enumerate(labels):
            if label >= 0:
                members[label].append(i)
        numbers: dict[int, int] = {label: label for label in members if label in confirmed}
        used = set(confirmed)
        for label, rows in sorted(members.items(), key=lambda item: -len(item[1])):
            if label in numbers:
                continue
            votes = Counter(table.groups[i] for i in rows if table.groups[i] >= 0 and table.groups[i] not in used)
            if votes:
                numbers[label] = votes.most_common(1)[0][0]
            else:
                numbers[label] = int(self._one("INSERT INTO groups (confirmed) VALUES (0) RETURNING id")[0])
            used.add(numbers[label])
        for i, label in enumerate(labels):
            group = numbers[label] if label >= 0 else None
            if (table.groups[i] if table.groups[i] >= 0 else None) != group:
                self._db.execute("UPDATE samples SET member = ?, confirmed = 0 WHERE id = ?", (group, table.ids[i]))
        self._db.execute(
            "DELETE FROM groups WHERE id NOT IN (SELECT member FROM samples WHERE member IS NOT NULL) AND NOT confirmed"
        )

    def _read_table(self) -> "_Table":
        rows = self._db.execute("SELECT id, photograph, member, confirmed, feature FROM samples ORDER BY id").fetchall()
        features = torch.stack([_from_blob(row[4]) for row in rows]) if rows else torch.empty(0, 1)
        return _Table(
            [row[0] for row in rows],
            [UNASSIGNED if row[1] is None else row[1] for row in rows],
            [UNASSIGNED if row[2] is None else row[2] for row in rows],
            [bool(row[3]) for row in rows],
            features,
        )

    def _rate_groups(self) -> tuple[list[Group], dict[int, float]]:
        """Return the groups, the most doubtful first, and the membership probability of each sample; cached per step."""
        state = (self.revision, int(self._one("SELECT COUNT(*) FROM samples")[0]))
        if self._ratings is None or self._ratings[0] != state:
            self._ratings = (state, *self._compute_ratings())
        return self._ratings[1], self._ratings[2]

    def _compute_ratings(self) -> tuple[list[Group], dict[int, float]]:
        table = self._read_table()
        calibration = LogisticCalibration(float(self._get("slope") or 0), float(self._get("offset") or 0))
        prior = float(self._get("prior") or DEFAULT_PRIOR)
        labels = torch.tensor(table.groups, dtype=torch.long)
        certainty = membership(table.features, labels, calibration, prior=prior)
        certainty[torch.tensor(table.confirmed, dtype=torch.bool)] = 1.0
        probabilities = dict(zip(table.ids, certainty.tolist(), strict=True))
        stored = self._db.execute("SELECT id, name, confirmed FROM groups ORDER BY id").fetchall()
        if not stored:
            return [], probabilities
        indices = {number: i for i, (number, _, _) in enumerate(stored)}
        index = torch.tensor([indices.get(number, -1) for number in table.groups])
        is_member = index >= 0
        index = index[is_member]
        least_certain = torch.ones(len(stored), dtype=torch.double)
        least_certain.scatter_reduce_(0, index, certainty[is_member], "amin")
        sizes = torch.zeros(len(stored), dtype=torch.double).index_add_(0, index, torch.ones(len(index)).double())
        sums = torch.zeros(len(stored), table.features.shape[1], dtype=torch.double)
        sums.index_add_(0, index, normalize(table.features.double())[is_member])
        named = torch.tensor([name is not None for _, name, _ in stored])
        means = sums / sizes.clamp_min(1)[:, None]
        similar, probability = _find_most_similar(means, named, calibration, prior)
        groups = []
        for i, (number, name, fixed) in enumerate(stored):
            if not sizes[i]:
                continue
            other = int(similar[i])
            same = float(probability[i])
            doubt = max(1 - float(least_certain[i]), same if not (fixed and stored[other][2]) else 0.0)
            pair = (stored[other][0], same) if other >= 0 else (None, 0.0)
            groups.append(Group(number, name, int(sizes[i]), doubt, *pair))
        groups.sort(key=lambda group: (-group.doubt, -group.size, group.id))
        return groups, probabilities

    def _select_samples(self, where: str, *values: Any) -> list[Sample]:
        probabilities = self._rate_groups()[1]
        rows = self._db.execute(
            "SELECT s.id, p.path, s.box, s.member FROM samples s LEFT JOIN photographs p ON p.id = s.photograph "
            f"{where} ORDER BY s.id",
            values,
        )
        return [
            Sample(
                number,
                path or "",
                None if box is None else tuple(json.loads(box)),
                group,
                probabilities.get(number, 0.0),
            )
            for number, path, box, group in rows
        ]

    def _check_groups(self, groups: Sequence[int]) -> dict[int, str | None]:
        """Return the names of groups, or raise a ``ValueError`` if one does not exist."""
        names = {}
        for group in groups:
            row = self._one_or_none("SELECT name FROM groups WHERE id = ?", group)
            if row is None:
                raise ValueError(f"there is no group {group} in the album")
            names[group] = row[0]
        return names

    def _find_group(self, sample: int) -> int | None:
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
        row = self._one_or_none(statement, *values)
        assert row is not None
        return row

    def _one_or_none(self, statement: str, *values: Any) -> tuple[Any, ...] | None:
        rows = self._db.execute(statement, values).fetchall()
        return rows[0] if rows else None


class _Table(NamedTuple):
    """All samples as columns, with ``UNASSIGNED`` for a missing photograph or group."""

    ids: list[int]
    photographs: list[int]
    groups: list[int]
    confirmed: list[bool]
    features: Float[Tensor, "n d"]


def _find_most_similar(
    means: Float[Tensor, "g d"], named: Bool[Tensor, "g"], calibration: LogisticCalibration, prior: float
) -> tuple[Int[Tensor, "g"], Float[Tensor, "g"]]:
    """Return per group the most similar other group and the probability that both show one identity.

    Two named groups are different people. A group without a candidate gets −1 and probability 0.
    """
    similar, probability = torch.full((len(means),), -1), torch.zeros(len(means), dtype=torch.double)
    if len(means) < 2:
        return similar, probability
    for rows in torch.arange(len(means)).split(1024):
        cosines = means[rows] @ means.T
        cosines[torch.arange(len(rows)), rows] = -torch.inf
        cosines.masked_fill_(named[rows][:, None] & named[None], -torch.inf)
        best, indices = cosines.max(1)
        allowed = best.isfinite()
        similar[rows[allowed]] = indices[allowed]
        probability[rows[allowed]] = calibration.probability(best[allowed], prior)
    return similar, probability


def _from_blob(blob: bytes) -> Float[Tensor, "d"]:
    return torch.from_numpy(np.frombuffer(blob, np.float32).copy())
