"""Galleries of known identities: enroll, verify, identify with rejection of strangers, calibrate, correct, forget."""

import datetime
import json
import os
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..data.media import SAMPLE_ENDINGS
from ..data.sources import Source, open_source
from ..evaluation import choose_threshold
from ..evaluation import rerank as rerank_features
from ..evaluation.roc import check_pairs
from ..files import checksum
from ..geometry import cosine
from .calibration import Calibration, Rate
from .embedder import Embedder
from .features import embed, embed_samples, score_all_pairs
from .probability import collect_same_scores, fit_probability
from .stores import CounterExample, Recall, Templates, normalize_name, open_store
from .stores.store import Settings

MAX_SCANNED = 10_000  # identities among which those with several templates are looked for when fitting probabilities
Scoring = Callable[[Float[Tensor, "p d"], Float[Tensor, "t d"]], Float[Tensor, "p t"]]
"""Scores of probes with templates, higher for the same identity, such as a normalized or a quality-aware cosine."""


class Match(NamedTuple):
    """An identity, the score of its best template, and whether that score reaches the threshold.

    ``probability`` is that of being this person, if half of all probes are of enrolled people. It is None if the gallery
    was calibrated without several pictures of the same person.

    >>> Match("ada", 0.93, accepted=True).identity
    'ada'
    """

    identity: str
    score: float
    accepted: bool
    probability: float | None = None


class Identification(NamedTuple):
    """The answer to "who is this?" for one probe: its candidates, best first.

    >>> answer = Identification((Match("ada", 0.93, True), Match("bob", 0.41, False)))
    >>> answer.name, answer.accepted, answer.best.score
    ('ada', True, 0.93)
    >>> Identification((Match("bob", 0.41, False),)).name is None  # a stranger
    True
    """

    candidates: tuple[Match, ...]
    info: Mapping[str, Any] = MappingProxyType({})
    """what is known of the probe: for a face its ``box``, ``landmarks``, detector ``score`` and ``quality``"""
    source: str = ""
    """the picture that the probe was found in, if it has a path"""

    @property
    def best(self) -> Match:
        """The candidate with the highest score, accepted or not."""
        return self.candidates[0]

    @property
    def accepted(self) -> bool:
        """Whether the best candidate reaches the threshold."""
        return self.best.accepted

    @property
    def name(self) -> str | None:
        """The name of the best candidate if it is accepted; None for a stranger."""
        return self.best.identity if self.accepted else None


class Rejection(NamedTuple):
    """The effect of counter-examples, stored by :meth:`Gallery.reject`.

    Attributes:
        identity: The identity that the pictures do not show.
        before: The match of each picture before it was stored, with ``threshold``.
        after: The same match now.
        threshold: The threshold of :meth:`Gallery.identify`, None if the gallery is not calibrated.
        templates: How many templates of the identity could be compared with the others of it.
        own_before: How many of those reached the threshold before.
        own_after: How many of those reach it now. Fewer than before is the price: the person is recognized less often.
        expected_fpir: The share of strangers that the calibrated threshold is expected to accept, None if not calibrated.
            Counter-examples only lower scores, so it is an upper bound.

    >>> with Gallery(":memory:") as gallery:
    ...     _ = gallery.enrol("ada", torch.eye(3)[:2])
    ...     gallery.reject("ada", torch.ones(3)).templates
    2
    """

    identity: str
    before: tuple[Match, ...]
    after: tuple[Match, ...]
    threshold: float | None
    templates: int
    own_before: int
    own_after: int
    expected_fpir: float | None


class Forgotten(NamedTuple):
    """The result of :meth:`Gallery.forget`.

    Attributes:
        identity: The name.
        templates: How many templates were erased.
        remaining: Places that the gallery cannot erase, such as a server's archives.
        backups: Copies made with this gallery that still contain the identity or cannot be read.

    >>> with Gallery(":memory:") as gallery:
    ...     _ = gallery.enrol("ada", torch.eye(3))
    ...     gallery.forget("ada").templates
    3
    """

    identity: str
    templates: int
    remaining: tuple[str, ...]
    backups: tuple[str, ...]


class GalleryInfo(NamedTuple):
    """Figures of a gallery, returned by :meth:`Gallery.info`.

    Attributes:
        path: Where it is.
        identities: The number of people.
        templates: The number of templates.
        dim: The dimension of the features, None while it is empty.
        fingerprint: Of the model.
        counterexamples: The number of stored counter-examples.
        encrypted: Whether it is encrypted.
        megabytes: The size of its files, None on a server.
        calibrations: The stored thresholds.
        backups: Copies that were made of it.

    >>> with Gallery(":memory:") as gallery:
    ...     gallery.info().encrypted
    False
    """

    path: str
    identities: int
    templates: int
    dim: int | None
    fingerprint: str | None
    counterexamples: int
    encrypted: bool
    megabytes: float | None
    calibrations: Sequence[Calibration]
    backups: Sequence[str]


class Gallery:
    """Identities with one or more templates each, kept in a file or on a PostgreSQL server.

    Every change is one transaction: when a method returns, the change is on disk, and a process killed before that
    leaves nothing of it. Any number of processes may read while one writes. Names are compared in Unicode's composed
    form (NFC). Stored rows carry checksums that are compared when they are read.

    Wherever a method takes ``probes``, ``strangers`` or templates, it takes features ``(d,)`` or ``(n, d)`` as a
    floating-point tensor. A gallery that is opened with an :class:`Embedder` also takes what the embedder takes
    (a path, a PIL image, an array, a picture tensor, or a list of these) and a folder or :class:`Source` of pictures.

    Args:
        path: A file, created if there is none (the features are in a second file beside it); ``":memory:"`` for a
            gallery that is gone when closed; or ``postgresql://user@host/database#name`` for one on a server with
            pgvector.
        model: The embedder that computes the features; or another module, or a fingerprint, whose features you pass in.
            Its fingerprint is stored when the gallery is created, and features of another model are refused. Without
            it, a gallery that has a fingerprint can only be listed, checked, copied and have identities removed.
        create: Whether to create a gallery that is missing.
        readonly: Refuse every change. A file that cannot be written to, as on read-only media, is always opened so.
        key: The path of a key file, or 32 bytes; by default the variable ``HYPERSPHERE_GALLERY_KEY``, if it is set. A
            new gallery is encrypted with it, and an encrypted one cannot be opened without it.

    Raises:
        ValueError: If there is no such gallery, or it holds features of another model.
        OSError: If the file or the server cannot be used.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Gallery(f"{folder}/people.db") as gallery:
    ...     _ = gallery.enrol("ada", torch.tensor([[1.0, 0.0], [0.9, 0.1]]))
    ...     _ = gallery.enrol("bob", torch.tensor([0.0, 1.0]))
    ...     gallery.identify(torch.tensor([[2.0, 0.1]]), threshold=0.8)[0].name, gallery.list()
    ('ada', {'ada': 2, 'bob': 1})
    """

    def __init__(
        self,
        path: str | Path,
        model: nn.Module | str | None = None,
        *,
        create: bool = True,
        readonly: bool = False,
        key: bytes | str | os.PathLike[str] | None = None,
    ):
        self._key = key
        given = _fingerprint(model) if isinstance(model, nn.Module) else model
        self.embedder = model if isinstance(model, Embedder) else None
        self._store = open_store(path, given, create=create, readonly=readonly, key=key)
        self.path, self.fingerprint = self._store.location, self._store.fingerprint
        if given is not None and given != self.fingerprint:
            self.close()
            raise ValueError(
                f"the gallery {self.path} holds features of model {_short(self.fingerprint)}, "
                f"got features of model {_short(given)}"
            )
        self._anonymous = given is None and self.fingerprint is not None

    def __repr__(self) -> str:
        """Return the place, the number of identities, the model and the calibrated thresholds."""
        try:
            settings = self._store.settings()
        except Exception:  # a closed or broken gallery must still be printable
            return f"Gallery({self.path!r}, closed)"
        rates = [f"{found.by}={found.rate:g} at {found.threshold:.4f}" for found in _calibrations(settings).values()]
        count = _size(settings)
        parts = [f"{count} {'identity' if count == 1 else 'identities'}", f"model {_short(self.fingerprint)}", *rates]
        return f"Gallery({self.path!r}: {', '.join(parts)})"

    def enrol(
        self, identity: str | Sequence[str], templates: Any, sources: Sequence[str] | None = None
    ) -> Sequence[int]:
        """Add templates in one transaction and return their numbers. They are on disk when this returns.

        Args:
            identity: Whose templates they are, new or known: one name for all, or one for each template. Many
                templates in one call are much faster than many calls, each of which waits for the disk.
            templates: Features or pictures; see the class.
            sources: The file that each template comes from; by default the paths of pictures given as paths. Enrolling
                the same source of an identity again replaces its template.

        Returns:
            The number of each template.

        Raises:
            ValueError: If a name or a feature cannot be used, or the numbers of names and templates differ.
        """
        rows, names = self._features(templates)
        check_templates(rows)
        if not isinstance(identity, str) and len(identity) != len(rows):
            raise ValueError(
                f"identity must be one name, or a name for each of {len(rows)} features, got {len(identity)}"
            )
        given = [identity] * len(rows) if isinstance(identity, str) else identity
        normal = {name: normalize_name(name) for name in dict.fromkeys(given)}
        sources = (names or [""] * len(rows)) if sources is None else [*sources]
        if len(sources) != len(rows):
            raise ValueError(f"sources must name each of {len(rows)} features, got {len(sources)}")
        return self._store.enrol([normal[name] for name in given], rows, sources)

    enroll = enrol

    def remove(self, identity: str) -> int:
        """Remove an identity and return how many templates it had. An unknown identity is a ``ValueError``."""
        count = self._store.remove(normalize_name(identity))
        if count is None:
            raise ValueError(f"identity {identity!r} is not in the gallery")
        return count

    def forget(self, identity: str, *, backups: bool = False) -> Forgotten:
        """Erase an identity: its rows, features, counter-examples, free space of the database, and the log.

        :meth:`remove` already overwrites features and names. This also rewrites the database, insists that the log is
        empty, and names the copies that still contain the identity.

        Args:
            identity: The name.
            backups: Whether to erase the identity from the copies too.

        Returns:
            The number of templates, and the places that still hold the identity.

        Raises:
            ValueError: If the identity is unknown. What an interrupted call left behind is erased all the same.
            OSError: If another process is reading, so that the log cannot be emptied: call it again.
        """
        name = normalize_name(identity)
        count = self._store.remove(name)
        remaining = self._store.erase()
        kept = []
        for copy in self._known_copies():
            state = self._forget_in_copy(copy, name, backups)
            if state is not None:
                kept.append(state)
        if count is None:
            raise ValueError(f"identity {identity!r} is not in the gallery" + "".join(f"; {one}" for one in kept))
        return Forgotten(name, count, tuple(remaining), tuple(kept))

    def reject(self, identity: str, pictures: Any, sources: Sequence[str] | None = None) -> Rejection:
        """Store pictures that do not show an identity, as counter-examples.

        The match of a probe with the identity is lowered if the probe resembles a counter-example more than it resembles
        the identity: with the best cosine s to the templates and the best cosine r to the counter-examples, the score is
        s − (r − s) for r > s. All counter-examples are also the gallery's :attr:`cohort`.

        Args:
            identity: The identity that was wrongly matched.
            pictures: Features or pictures of somebody else; see the class.
            sources: The file of each picture. The same source of an identity replaces the earlier counter-example.

        Returns:
            The matches before and after, and how many templates of the identity itself still reach the threshold.

        Raises:
            ValueError: If the identity is unknown or a feature cannot be used.

        >>> with Gallery(":memory:") as gallery:
        ...     _ = gallery.enrol("ada", torch.tensor([1.0, 0.0]))
        ...     found = gallery.reject("ada", torch.tensor([0.8, 0.6]))
        >>> round(found.before[0].score, 2), round(found.after[0].score, 2)
        (0.8, 0.6)
        """
        rows, paths = self._features(pictures)
        check_templates(rows)
        settings = self._store.settings()
        name, own = normalize_name(identity), self._store.features_of(normalize_name(identity))
        if own is None:
            raise ValueError(f"identity {identity!r} is not in the gallery")
        _check_dim(rows, settings)
        sources = (paths or [""] * len(rows)) if sources is None else [*sources]
        if len(sources) != len(rows):
            raise ValueError(f"sources must name each of {len(rows)} features, got {len(sources)}")
        stored = _calibrations(settings)
        found = stored.get("fpir", stored.get("far"))
        threshold = None if found is None else found.threshold
        before = self._score_identity(name, rows, own)
        own_before = self._score_own(name, own)
        if not self._store.reject(name, rows, sources):
            raise ValueError(f"identity {identity!r} is not in the gallery")
        after, own_after = self._score_identity(name, rows, own), self._score_own(name, own)
        least = float("inf") if threshold is None else threshold
        return Rejection(
            name,
            tuple(Match(name, score, score >= least) for score in before),
            tuple(Match(name, score, score >= least) for score in after),
            threshold,
            len(own_before),
            sum(score >= least for score in own_before),
            sum(score >= least for score in own_after),
            None if found is None else found.expected_fpir(_size(settings)),
        )

    @property
    def cohort(self) -> Float[Tensor, "c d"]:
        """The features of all counter-examples, for scores that are normalized by a cohort.

        >>> from hypersphere.evaluation import ASNorm
        >>> with Gallery(":memory:") as gallery:
        ...     _ = gallery.enrol("ada", torch.randn(2, 8))
        ...     _ = gallery.reject("ada", torch.randn(5, 8))
        ...     answer = gallery.identify(torch.randn(8), threshold=3.0, score=ASNorm(gallery.cohort))
        """
        found = self._store.counterexamples()
        return torch.stack([one.feature for one in found]) if found else torch.zeros(0, 0)

    @property
    def counterexamples(self) -> Sequence[CounterExample]:
        """The stored counter-examples, oldest first."""
        return self._store.counterexamples()

    def info(self) -> GalleryInfo:
        """Return the figures of the gallery.

        >>> with Gallery(":memory:") as gallery:
        ...     _ = gallery.enrol("ada", torch.eye(3))
        ...     gallery.info().templates
        3
        """
        settings, files = self._store.settings(), self._store.files()
        dim = settings.get("dim")
        return GalleryInfo(
            self.path,
            _size(settings),
            sum(self._store.counts().values()),
            None if dim is None else int(dim),
            self.fingerprint,
            int(settings.get("counterexamples") or 0),
            settings.get("protection") is not None,
            sum(file.stat().st_size for file in files) / 1e6 if files else None,
            tuple(_calibrations(settings).values()),
            self._known_copies(),
        )

    def templates(self) -> Templates:
        """Return all templates of one moment: identities, numbers, sources and features."""
        return self._store.templates()

    def list(self, after: str = "", limit: int | None = None) -> dict[str, int]:
        """Return the identities in alphabetical order, with the number of their templates.

        Args:
            after: Only identities behind this name, such as the last one of the previous page.
            limit: At most this many; all by default.
        """
        return self._store.counts(after, limit)

    def count(self, identity: str) -> int:
        """Return the number of templates of an identity, 0 if it is not enrolled."""
        found = self._store.features_of(normalize_name(identity))
        return 0 if found is None else len(found)

    def calibrate(
        self,
        *,
        far: float | None = None,
        pairs: Any = None,
        fpir: float | None = None,
        strangers: Any = None,
        people: Sequence[Hashable] | Tensor | None = None,
    ) -> Calibration:
        """Choose a threshold by a false accept rate of pairs or by a false identification rate of strangers; store it.

        :meth:`verify` makes one comparison and uses the threshold of ``far``. :meth:`identify` compares with everybody:
        a stranger has about a chance of 1 − (1 − far)^N to be accepted among N identities. It therefore uses the
        threshold of ``fpir``, and that of ``far`` only if there is no other. Both can be stored. None of the people may
        be one that the model was trained on: a model separates those better than others, and the rate would be higher
        than promised.

        ``fpir`` is a promise about new strangers, made with a confidence of 95 %. Pictures of one person are accepted or
        rejected together, so the promise rests on the number of people and not of pictures; see
        :func:`~hypersphere.evaluation.choose_threshold`. A rate of 0.01 needs 299 strangers, one of 0.05 needs 59.

        Args:
            far: The share of pairs of different people that may be accepted; needs ``pairs``.
            pairs: Scores ``(n,)`` and whether each is of the same person ``(n,)``, as a tuple of two tensors; or, with
                an embedder, labeled pictures (anything that ``open_source`` takes), of which all pairs are compared.
            fpir: The share of strangers that may be taken for somebody; needs ``strangers``.
            strangers: Features or pictures of people who are not enrolled.
            people: Who each stranger is, one name or number per feature. Labels of a folder or :class:`Source` are used
                if it is not given. If every feature is of another person, give ``range(len(strangers))``.

        Returns:
            What was stored: the threshold, the measured rate, its interval and the number of people among it.

        Raises:
            ValueError: If there are too few people or pairs for the rate, or it is not known who the strangers are.

        >>> gallery = Gallery(":memory:")
        >>> _ = gallery.enrol([f"person {i}" for i in range(50)], torch.randn(50, 128))
        >>> gallery.calibrate(fpir=0.01, strangers=torch.randn(500, 128), people=range(500)).people
        500
        >>> gallery.close()
        """
        if (far is None) == (fpir is None) or (far is None) != (pairs is None) or (fpir is None) != (strangers is None):
            raise ValueError("calibrate needs far and pairs, or fpir and strangers")
        if far is not None and people is not None:
            raise ValueError("people must be given with fpir and strangers, got far")
        if far is not None:
            by: Rate
            scores, same = check_pairs(*self._pairs(pairs))
            settings = self._store.settings()
            by, point = "far", choose_threshold(scores[~same], far=far)
            fitted = fit_probability(scores[same], scores[~same])
        else:
            assert fpir is not None
            rows, labels = self._strangers(strangers, people)
            settings = self._store.settings()
            nearest = self._nearest(rows, 1, settings)
            examples = self._examples(settings)
            if examples:
                nearest = self._nearest(rows, 1 + len(examples), settings)
                nearest = [_lower(row, near, examples, None) for row, near in zip(rows, nearest, strict=True)]
            best = torch.tensor([near[0][1] for near in nearest], dtype=torch.double)
            by, point = "fpir", choose_threshold(best, fpir=fpir, people=labels)
            several = [name for name, count in self._store.counts("", MAX_SCANNED).items() if count > 1]
            fitted = fit_probability(collect_same_scores(rows, labels, several, self._store.features_of), best)
        interval = (point.rate.low, point.rate.high)
        rate = far if far is not None else fpir
        assert rate is not None
        found = Calibration(point.threshold, by, rate, _size(settings), float(point.rate), interval, point.people)
        if fitted is not None:
            found = found._replace(slope=fitted[0], offset=fitted[1])
        self._store.put({f"calibration_{found.by}": found.to_text()})
        warning = found.warning(found.size)
        if warning is not None:
            warnings.warn(warning, stacklevel=2)
        return found

    @property
    def calibrations(self) -> dict[Rate, Calibration]:
        """The stored calibrations, by the kind of their rate: ``"far"`` and ``"fpir"``, as far as there are any."""
        return _calibrations(self._store.settings())

    def verify(
        self,
        identity: str,
        probes: Any,
        threshold: float | None = None,
        *,
        score: Scoring | None = None,
    ) -> Sequence[Match]:
        """Compare each probe with one identity. The score is that of the identity's best template.

        Args:
            identity: The claimed identity.
            probes: Features or pictures; see the class.
            threshold: The lowest score to accept; by default the one calibrated by ``far``.
            score: Another score than the cosine, which needs a threshold of its own.

        Returns:
            One match per probe.

        Raises:
            ValueError: If the identity is unknown or there is no threshold.
        """
        rows, settings = self._features(probes)[0], self._store.settings()
        calibration = _calibrations(settings).get("far")
        if threshold is None:
            threshold = _stored_threshold(calibration, score, "far=…, pairs=…")
        own = self._store.features_of(normalize_name(identity))
        if own is None:
            raise ValueError(f"identity {identity!r} is not in the gallery")
        _check_dim(rows, settings)
        scores = self._score_identity(normalize_name(identity), rows, own, score, settings)
        fitted = calibration if calibration is not None and score is None else Calibration(threshold, "far", 0.0, 0)
        return [Match(identity, best, best >= threshold, fitted.probability(best)) for best in scores]

    def identify(
        self,
        probes: Any,
        k: int = 1,
        threshold: float | None = None,
        *,
        score: Scoring | None = None,
        among: int = 100,
        rerank: bool = False,
        approximate: bool = False,
        choose: str | None = None,
    ) -> Sequence[Identification]:
        """Find the most similar identities of each probe. Nobody is accepted below the threshold.

        Of equal scores the identity enrolled first comes first.

        Args:
            probes: Features or pictures; see the class.
            k: The number of candidates per probe; fewer if fewer identities are enrolled.
            threshold: The lowest score to accept; by default the one calibrated by ``fpir``, or else by ``far``.
            score: Another score than the cosine, which needs a threshold of its own.
            among: The number of identities, nearest by cosine, that ``score`` or ``rerank`` is computed for.
            rerank: Order the candidates by :func:`hypersphere.evaluation.rerank`, which also counts the neighbors that
                probe and templates have in common. Scores remain cosines: nobody is accepted below the threshold, so no
                more strangers are accepted than without it.
            approximate: Search by the index of :meth:`build_index`, which may miss neighbors.
            choose: Which faces of a photograph are probes: ``"all"``, ``"largest"``, ``"central"`` or ``"refuse"``; by
                default what the embedder's preprocessing says.

        Returns:
            One :class:`Identification` per probe, which is a feature, a picture or, with ``choose="all"``, a face.

        Raises:
            ValueError: If the gallery is empty or there is no threshold.
        """
        if k < 1 or among < 1:
            raise ValueError(f"k and among must be integers ≥ 1, got {k!r} and {among!r}")
        if rerank and score is not None:
            raise ValueError("rerank and score must not both be given: each of them orders the candidates")
        rows, sources, info = self._find_probes(probes, choose)
        settings = self._store.settings()
        if not _size(settings):
            raise self._empty()
        stored = _calibrations(settings)
        found = stored.get("fpir", stored.get("far"))
        if threshold is None:
            threshold = _stored_threshold(found, score, "fpir=…, strangers=…, people=…")
            warning = None if found is None else found.warning(_size(settings))
            if warning is not None:
                warnings.warn(warning, stacklevel=2)
        examples = self._examples(settings)
        # Counter-examples only lower scores, so the best k are among the best k and those that have any.
        deep = (k if score is None and not rerank else max(k, among)) + len(examples)
        nearest = self._nearest(rows, deep, settings, approximate)
        if score is not None:
            nearest = [self._rescore(row, near, score) for row, near in zip(rows, nearest, strict=True)]
        if examples:
            nearest = [_lower(row, near, examples, score) for row, near in zip(rows, nearest, strict=True)]
        if rerank:
            nearest = [self._rerank(row, near[: max(k, among)]) for row, near in zip(rows, nearest, strict=True)]
        fitted = found if found is not None and score is None else Calibration(threshold, "far", 0.0, 0)
        return [
            Identification(
                tuple(Match(name, value, value >= threshold, fitted.probability(value)) for name, value in near[:k]),
                one,
                source,
            )
            for near, one, source in zip(nearest, info, sources, strict=True)
        ]

    def build_index(self, k: int = 10, probes: int = 100) -> Recall:
        """Build an approximate index (HNSW) of a gallery on a server, and return its measured recall.

        Templates enrolled later enter it by themselves. A gallery in a file is always searched exactly.
        """
        return self._store.build_index(k, probes)

    def check(self) -> Sequence[str]:
        """Read everything, compare it with its checksums, and return the problems, none if all is well."""
        return self._store.check()

    def backup(self, target: str | Path) -> None:
        """Write a consistent copy to the new file ``target`` while others go on reading; of a server too, as a file.

        The gallery remembers its copies, so that :meth:`forget` can name those that contain a person. One that is opened
        for reading only cannot.
        """
        self._store.backup(Path(target))
        self.remember_copy(target)

    def remember_copy(self, target: str | Path) -> None:
        """Note that there is a copy of this gallery at ``target``, for :meth:`forget`."""
        entry = {"path": source_name(target), "date": datetime.date.today().isoformat()}
        known = [one for one in _copies(self._store.settings()) if one["path"] != entry["path"]]
        if not self._store.readonly:  # a gallery on read-only media cannot be changed
            self._store.put({"backups": json.dumps([*known, entry])})

    def close(self) -> None:
        """Close the gallery, which cannot be used afterwards."""
        self._store.close()

    def __enter__(self) -> "Gallery":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __len__(self) -> int:
        return _size(self._store.settings())

    def __contains__(self, identity: str) -> bool:
        return self.count(identity) > 0

    def _features(self, given: Any) -> tuple[Float[Tensor, "n d"], Sequence[str]]:
        """Return checked features of features or pictures, and the paths of the pictures if they have any."""
        rows, paths, _ = self._find_probes(given, None)
        return rows, paths if any(paths) else []

    def _find_probes(
        self, given: Any, choose: str | None
    ) -> tuple[Float[Tensor, "n d"], Sequence[str], Sequence[Mapping[str, Any]]]:
        """Return checked features, the path of the picture of each or "", and what is known of each."""
        if self._anonymous:
            raise ValueError(
                f"the gallery {self.path} holds features of model {_short(self.fingerprint)}: open it with that model"
            )
        paths: Sequence[str] = []
        info: Sequence[Mapping[str, Any]] = []
        if isinstance(given, Tensor) and given.is_floating_point() and (given.ndim < 3 or self.embedder is None):
            features = given
        elif self.embedder is None:
            raise ValueError(
                f"a gallery that is opened without an embedder takes features, a floating-point tensor of shape (d,) "
                f"or (n, d), got {type(given).__name__}: open it with Gallery(path, embedder)"
            )
        elif _is_picture_set(given):
            found = embed(self.embedder, given, choose=choose)
            features, info, paths = found.features, found.info, [source_name(name) for name in found.files]
        else:
            features, owners, info = embed_samples(self.embedder, given, choose)
            several = given if isinstance(given, list | tuple) else [given]
            if all(isinstance(one, str | os.PathLike) for one in several):
                paths = [source_name(several[i]) for i in owners]
        rows = features.detach().cpu().float()
        rows = rows[None] if rows.ndim == 1 else rows
        if rows.ndim != 2 or not rows.numel():
            raise ValueError(f"features must have shape (d,) or (n, d), got {tuple(features.shape)}")
        if not rows.isfinite().all():
            raise ValueError("features must be finite, got NaN or infinity")
        return rows, paths or [""] * len(rows), info or [MappingProxyType({})] * len(rows)

    def _known_copies(self) -> Sequence[str]:
        return [one["path"] for one in _copies(self._store.settings())]

    def _forget_in_copy(self, path: str, name: str, erase: bool) -> str | None:
        """Return why a copy still holds an identity, None if it does not."""
        if not Path(path).exists():
            return None
        try:
            with Gallery(path, create=False, readonly=not erase, key=self._key) as copy:
                if name not in copy:
                    return None
                if erase:
                    copy.forget(name, backups=True)
                    return None
                return f"{path} still contains {name}"
        except (ValueError, OSError) as error:
            return f"{path} may still contain {name}: {error}"

    def _examples(self, settings: Settings) -> dict[str, Tensor]:
        """Return the features of counter-examples by identity."""
        if not int(settings.get("counterexamples") or 0):
            return {}
        found: dict[str, list[Tensor]] = {}
        for one in self._store.counterexamples():
            found.setdefault(one.identity, []).append(one.feature)
        return {name: torch.stack(rows) for name, rows in found.items()}

    def _score_identity(
        self, name: str, rows: Tensor, own: Tensor, score: Scoring | None = None, settings: Settings | None = None
    ) -> Sequence[float]:
        """Return the best score of each row with the templates of an identity, lowered by its counter-examples."""
        found = cosine(rows, own, pairwise=True) if score is None else score(rows, own)
        best = found.amax(1).tolist()
        examples = self._examples(self._store.settings() if settings is None else settings)
        if name not in examples:
            return best
        return [_lower(row, [(name, s)], examples, score)[0][1] for row, s in zip(rows, best, strict=True)]

    def _score_own(self, name: str, own: Tensor) -> Sequence[float]:
        """Return the score of each template of an identity with its other templates; none if there is only one."""
        if len(own) < 2:
            return []
        return [
            self._score_identity(name, own[i : i + 1], torch.cat([own[:i], own[i + 1 :]]))[0] for i in range(len(own))
        ]

    def _strangers(
        self, strangers: Any, people: Sequence[Hashable] | Tensor | None
    ) -> tuple[Float[Tensor, "n d"], Int[Tensor, "n"]]:
        """Return the features of strangers, and a number for each that says whose it is."""
        if people is None and self.embedder is not None and _is_picture_set(strangers):
            found = embed(self.embedder, strangers)
            strangers, people = found.features, found.labels
        rows = self._features(strangers)[0]
        if people is None:
            raise ValueError(
                "people must say who each of the strangers is, because a rate over strangers counts people, not pictures; "
                "if every feature is of another person, give people=range(len(strangers))"
            )
        names = people.tolist() if isinstance(people, Tensor) else [*people]
        if len(names) != len(rows):
            raise ValueError(f"people must name each of {len(rows)} strangers, got {len(names)}")
        numbers = {name: i for i, name in enumerate(dict.fromkeys(names))}
        return rows, torch.tensor([numbers[name] for name in names])

    def _pairs(self, pairs: Any) -> tuple[Tensor, Tensor]:
        """Return the scores of pairs and whether each is of the same person."""
        if isinstance(pairs, tuple) and all(isinstance(one, Tensor) and one.ndim < 2 for one in pairs):
            scores, same = pairs
            return scores, same
        if self.embedder is None:
            raise ValueError("pairs must be a tuple of scores and same, unless the gallery is opened with an embedder")
        found = embed(self.embedder, open_source(pairs))
        return score_all_pairs(found)

    def _nearest(
        self, rows: Tensor, k: int, settings: Settings, approximate: bool = False
    ) -> Sequence[Sequence[tuple[str, float]]]:
        if not _size(settings):
            raise self._empty()
        _check_dim(rows, settings)
        return self._store.nearest(rows, k, approximate)

    def _empty(self) -> ValueError:
        return ValueError(f"the gallery {self.path} is empty: enrol someone first")

    def _rescore(self, row: Tensor, near: Sequence[tuple[str, float]], score: Scoring) -> Sequence[tuple[str, float]]:
        """Return the same identities by another score, best first."""
        found = {}
        for name, _ in near:
            own = self._store.features_of(name)
            if own is not None:  # it may have been removed since the search
                found[name] = score(row[None], own).max().item()
        return sorted(found.items(), key=lambda one: -one[1])

    def _rerank(self, row: Tensor, near: Sequence[tuple[str, float]]) -> Sequence[tuple[str, float]]:
        """Return the same identities with the same scores, ordered by the neighbors that the probe has in common with them."""
        stored = {name: self._store.features_of(name) for name, _ in near}
        templates = {name: own for name, own in stored.items() if own is not None}  # removed since the search
        if not templates:
            return []
        values = rerank_features(row[None], torch.cat(list(templates.values())))[0]
        parts = values.split([len(own) for own in templates.values()])
        best = {name: part.max().item() for name, part in zip(templates, parts, strict=True)}
        return sorted((one for one in near if one[0] in best), key=lambda one: -best[one[0]])


def _lower(
    row: Tensor, near: Sequence[tuple[str, float]], examples: dict[str, Tensor], score: Scoring | None
) -> Sequence[tuple[str, float]]:
    """Return candidates in their order after lowering those whose counter-examples are nearer than their templates."""
    found = []
    for name, value in near:
        if name in examples:
            other = examples[name]
            scores = cosine(row[None], other, pairwise=True) if score is None else score(row[None], other)
            value = min(value, 2 * value - scores.max().item())
        found.append((name, value))
    return sorted(found, key=lambda one: -one[1])


def _copies(settings: Settings) -> list[dict[str, str]]:
    return list(json.loads(settings.get("backups") or "[]"))


def check_templates(features: Float[Tensor, "n d"]) -> None:
    """Check that features can be enrolled: finite and not zero. Call it before creating a gallery for them."""
    if not features.isfinite().all():
        raise ValueError("features must be finite, got NaN or infinity")
    if not (features != 0).any(1).all():
        raise ValueError("features must have a direction, got a row of zeros")


def source_name(path: str | os.PathLike[str]) -> str:
    """Return the absolute path of a picture as text that every store can keep.

    >>> source_name("/photos/ann/1.png")
    '/photos/ann/1.png'
    """
    return os.fsencode(Path(path).absolute()).decode("utf-8", "backslashreplace")


def _is_picture_set(given: Any) -> bool:
    """Return whether something is a source, or a path of one, rather than a single picture or recording."""
    if isinstance(given, str | os.PathLike):
        return Path(given).is_dir() or not os.fspath(given).lower().endswith(SAMPLE_ENDINGS)
    return isinstance(given, Source)


def _calibrations(settings: Settings) -> dict[Rate, Calibration]:
    kinds: tuple[Rate, Rate] = ("far", "fpir")
    texts = {by: settings.get(f"calibration_{by}") for by in kinds}
    return {by: Calibration.from_text(text) for by, text in texts.items() if text is not None}


def _size(settings: Settings) -> int:
    return int(settings["people"] or 0)


def _check_dim(rows: Tensor, settings: Settings) -> None:
    dim = int(settings.get("dim") or 0)
    if rows.shape[1] != dim:
        raise ValueError(f"features must have dimension {dim}, that of the gallery, got {rows.shape[1]}")


def _stored_threshold(found: Calibration | None, score: Scoring | None, how: str) -> float:
    if score is not None:
        raise ValueError("threshold must be given with another score, because the calibrated threshold is a cosine")
    if found is None:
        raise ValueError(f"threshold must be given, or the gallery calibrated with {how}")
    return found.threshold


def _short(fingerprint: str | None) -> str:
    return "unknown" if fingerprint is None else fingerprint[:12]


def _fingerprint(model: nn.Module) -> str:
    known = getattr(model, "fingerprint", None)
    return known if isinstance(known, str) else checksum({}, model.state_dict())
