"""Galleries of known identities: enroll, verify, identify with rejection of strangers, calibrate, correct, forget."""

import datetime
import json
import os
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

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
from .gallery_results import Forgotten, GalleryInfo, Identification, Match, Rejection
from .probability import collect_same_scores, fit_probability
from .stores import CounterExample, Recall, Templates, normalize_name, open_store
from .stores.store import Settings

MAX_IDENTITIES_FOR_PROBABILITIES = 10_000  # identities searched for several templates when fitting probabilities
Scoring = Callable[[Float[Tensor, "p d"], Float[Tensor, "t d"]], Float[Tensor, "p t"]]
"""Function that scores probes against templates, such as a normalized or a quality-aware cosine; higher is more similar."""
Candidates = Sequence[tuple[str, float]]
"""Identities with their scores, best first."""


class Gallery:
    """Identities with one or more templates each, kept in a file or on a PostgreSQL server.

    Every change is one transaction: it is on disk when the method returns, and a process killed earlier changes nothing.
    Any number of processes may read while one writes. Names are compared in Unicode's composed form (NFC). Every stored
    row has a checksum, which is verified when the row is read.

    Methods take ``probes``, ``strangers`` and templates as features: a floating-point tensor ``(d,)`` or ``(n, d)``. A
    gallery opened with an :class:`Embedder` also takes the embedder's inputs (a path, a PIL image, an array, a picture
    tensor, or a list of these) and a folder or :class:`Source` of pictures.

    Args:
        path: A file, created if it is missing (a second file beside it holds the features); ``":memory:"`` for a
            gallery that is deleted when closed; or ``postgresql://user@host/database#name`` for a server with pgvector.
        model: The embedder that computes the features; or another module, or its fingerprint, if you pass features. The
            fingerprint is stored when the gallery is created, and features of another model are refused. If the gallery
            has a fingerprint and no model is given, you can only list, check and copy it and remove identities.
        create: Whether to create a missing gallery.
        readonly: Whether to refuse every change. A file that cannot be written to, as on read-only media, is always
            opened readonly.
        key: The path of a key file, or 32 bytes; by default the environment variable ``HYPERSPHERE_GALLERY_KEY``, if it
            is set. A new gallery is encrypted with it; an encrypted gallery cannot be opened without it.

    Raises:
        ValueError: If the gallery does not exist, or holds features of another model.
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
        fingerprint = _compute_fingerprint(model) if isinstance(model, nn.Module) else model
        self.embedder = model if isinstance(model, Embedder) else None
        self._store = open_store(path, fingerprint, create=create, readonly=readonly, key=key)
        self.path, self.fingerprint = self._store.location, self._store.fingerprint
        if fingerprint is not None and fingerprint != self.fingerprint:
            self.close()
            raise ValueError(
                f"the gallery {self.path} holds features of model {_shorten(self.fingerprint)}, "
                f"got features of model {_shorten(fingerprint)}"
            )
        self._refuses_features = fingerprint is None and self.fingerprint is not None

    def __repr__(self) -> str:
        """Return the path, the number of identities, the model and the calibrated thresholds."""
        try:
            settings = self._store.settings()
        except Exception:  # a closed or broken gallery must still be printable
            return f"Gallery({self.path!r}, closed)"
        stored = _read_calibrations(settings).values()
        rates = [f"{point.by}={point.rate:g} at {point.threshold:.4f}" for point in stored]
        count = _count_identities(settings)
        parts = [f"{count} {'identity' if count == 1 else 'identities'}", f"model {_shorten(self.fingerprint)}", *rates]
        return f"Gallery({self.path!r}: {', '.join(parts)})"

    def enrol(
        self, identity: str | Sequence[str], templates: Any, sources: Sequence[str] | None = None
    ) -> Sequence[int]:
        """Add templates in one transaction and return their numbers. They are on disk when this returns.

        Each call waits for the disk, so one call with many templates is much faster than many calls.

        Args:
            identity: One name for all templates, or one name per template. A name may be new or enrolled.
            templates: Features or pictures; see the class.
            sources: The file of each template; by default the paths of pictures given as paths. Enrolling the same
                source for an identity again replaces its template.

        Raises:
            ValueError: If a name or a feature is invalid, or the numbers of names and templates differ.
        """
        rows, names = self._read_features(templates)
        check_templates(rows)
        if not isinstance(identity, str) and len(identity) != len(rows):
            raise ValueError(
                f"identity must be one name, or a name for each of {len(rows)} features, got {len(identity)}"
            )
        identities = [identity] * len(rows) if isinstance(identity, str) else identity
        normalized = {name: normalize_name(name) for name in dict.fromkeys(identities)}
        sources = (names or [""] * len(rows)) if sources is None else [*sources]
        if len(sources) != len(rows):
            raise ValueError(f"sources must name each of {len(rows)} features, got {len(sources)}")
        return self._store.enrol([normalized[name] for name in identities], rows, sources)

    enroll = enrol

    def remove(self, identity: str) -> int:
        """Remove an identity and return the number of its templates. An unknown identity raises a ``ValueError``."""
        count = self._store.remove(normalize_name(identity))
        if count is None:
            raise ValueError(f"identity {identity!r} is not in the gallery")
        return count

    def forget(self, identity: str, *, backups: bool = False) -> Forgotten:
        """Erase an identity: its rows, features, counter-examples, free space of the database, and the log.

        :meth:`remove` already overwrites features and names. This also rewrites the database, fails unless the log is
        empty, and lists the copies that still contain the identity.

        Args:
            identity: The name.
            backups: Whether to erase the identity from the copies too.

        Returns:
            The number of templates, and the places that still hold the identity.

        Raises:
            ValueError: If the identity is unknown. Remains of an interrupted call are erased nevertheless.
            OSError: If the log cannot be emptied because another process is reading; call again later.
        """
        name = normalize_name(identity)
        count = self._store.remove(name)
        remaining = self._store.erase()
        states = [self._forget_in_copy(copy, name, backups) for copy in self._list_copies()]
        problems = [state for state in states if state is not None]
        if count is None:
            raise ValueError(f"identity {identity!r} is not in the gallery" + "".join(f"; {text}" for text in problems))
        return Forgotten(name, count, tuple(remaining), tuple(problems))

    def reject(self, identity: str, pictures: Any, sources: Sequence[str] | None = None) -> Rejection:
        """Store pictures that do not show an identity, as counter-examples.

        A probe that resembles a counter-example more than the identity gets a lower score for the identity. Let s be its
        best cosine with the templates and r its best cosine with the counter-examples: if r > s, the score is s − (r − s).
        All counter-examples together are the gallery's :attr:`cohort`.

        Args:
            identity: The identity that was wrongly matched.
            pictures: Features or pictures of somebody else; see the class.
            sources: The file of each picture. The same source replaces an earlier counter-example of the identity.

        Returns:
            The matches before and after, and how many templates of the identity itself still reach the threshold.

        Raises:
            ValueError: If the identity is unknown or a feature is invalid.

        >>> with Gallery(":memory:") as gallery:
        ...     _ = gallery.enrol("ada", torch.tensor([1.0, 0.0]))
        ...     effect = gallery.reject("ada", torch.tensor([0.8, 0.6]))
        >>> round(effect.before[0].score, 2), round(effect.after[0].score, 2)
        (0.8, 0.6)
        """
        rows, paths = self._read_features(pictures)
        check_templates(rows)
        settings = self._store.settings()
        name, templates = normalize_name(identity), self._store.features_of(normalize_name(identity))
        if templates is None:
            raise ValueError(f"identity {identity!r} is not in the gallery")
        _check_dim(rows, settings)
        sources = (paths or [""] * len(rows)) if sources is None else [*sources]
        if len(sources) != len(rows):
            raise ValueError(f"sources must name each of {len(rows)} features, got {len(sources)}")
        stored = _read_calibrations(settings)
        calibration = stored.get("fpir", stored.get("far"))
        before = self._score_identity(name, rows, templates)
        own_before = self._score_templates(name, templates)
        if not self._store.reject(name, rows, sources):
            raise ValueError(f"identity {identity!r} is not in the gallery")
        after, own_after = self._score_identity(name, rows, templates), self._score_templates(name, templates)
        threshold = float("inf") if calibration is None else calibration.threshold
        return Rejection(
            name,
            tuple(Match(name, score, score >= threshold) for score in before),
            tuple(Match(name, score, score >= threshold) for score in after),
            None if calibration is None else threshold,
            len(own_before),
            sum(score >= threshold for score in own_before),
            sum(score >= threshold for score in own_after),
            None if calibration is None else calibration.expected_fpir(_count_identities(settings)),
        )

    @property
    def cohort(self) -> Float[Tensor, "c d"]:
        """The features of all counter-examples, for scores normalized by a cohort.

        >>> from hypersphere.evaluation import ASNorm
        >>> with Gallery(":memory:") as gallery:
        ...     _ = gallery.enrol("ada", torch.randn(2, 8))
        ...     _ = gallery.reject("ada", torch.randn(5, 8))
        ...     answer = gallery.identify(torch.randn(8), threshold=3.0, score=ASNorm(gallery.cohort))
        """
        examples = self._store.counterexamples()
        return torch.stack([example.feature for example in examples]) if examples else torch.zeros(0, 0)

    @property
    def counterexamples(self) -> Sequence[CounterExample]:
        """The stored counter-examples, oldest first."""
        return self._store.counterexamples()

    def info(self) -> GalleryInfo:
        """Return the size, the model, the thresholds and the copies of the gallery.

        >>> with Gallery(":memory:") as gallery:
        ...     _ = gallery.enrol("ada", torch.eye(3))
        ...     gallery.info().templates
        3
        """
        settings, files = self._store.settings(), self._store.files()
        dim = settings.get("dim")
        return GalleryInfo(
            self.path,
            _count_identities(settings),
            sum(self._store.counts().values()),
            None if dim is None else int(dim),
            self.fingerprint,
            int(settings.get("counterexamples") or 0),
            settings.get("protection") is not None,
            sum(file.stat().st_size for file in files) / 1e6 if files else None,
            tuple(_read_calibrations(settings).values()),
            self._list_copies(),
        )

    def templates(self) -> Templates:
        """Return a consistent snapshot of all templates: identities, numbers, sources and features."""
        return self._store.templates()

    def list(self, after: str = "", limit: int | None = None) -> dict[str, int]:
        """Return the number of templates of each identity, in alphabetical order of the names.

        Args:
            after: List only names after this one, such as the last name of the previous page.
            limit: The maximum number of identities; all by default.
        """
        return self._store.counts(after, limit)

    def count(self, identity: str) -> int:
        """Return the number of templates of an identity, 0 if it is not enrolled."""
        templates = self._store.features_of(normalize_name(identity))
        return 0 if templates is None else len(templates)

    def calibrate(
        self,
        *,
        far: float | None = None,
        pairs: Any = None,
        fpir: float | None = None,
        strangers: Any = None,
        people: Sequence[Hashable] | Tensor | None = None,
    ) -> Calibration:
        """Choose and store a threshold, from a false accept rate of pairs or a false identification rate of strangers.

        :meth:`verify` compares with one identity and uses the threshold of ``far``. :meth:`identify` compares with N
        identities and accepts a stranger with probability 1 − (1 − far)^N. It therefore uses the threshold of ``fpir``,
        or that of ``far`` if no other is stored. Both can be stored. Use people that the model was not trained on: a
        model separates training identities better, and the actual rate would be higher than the calibrated one.

        The threshold keeps ``fpir`` for new strangers with a confidence of 95 %. Pictures of one person are accepted or
        rejected together, so the confidence depends on the number of people, not of pictures; see
        :func:`~hypersphere.evaluation.choose_threshold`. A rate of 0.01 needs 299 strangers, a rate of 0.05 needs 59.

        Args:
            far: The acceptable share of accepted pairs of different people; needs ``pairs``.
            pairs: A tuple of two tensors: scores ``(n,)`` and whether both samples show the same person ``(n,)``. With an
                embedder, also labeled pictures (anything that ``open_source`` takes), of which all pairs are compared.
            fpir: The acceptable share of strangers identified as an enrolled person; needs ``strangers``.
            strangers: Features or pictures of people who are not enrolled.
            people: A name or number per feature that says which stranger it shows. By default the labels of a folder or
                :class:`Source`. If every feature shows a different person, give ``range(len(strangers))``.

        Returns:
            The stored calibration: the threshold, the measured rate, its interval and the number of people.

        Raises:
            ValueError: If there are too few people or pairs for the rate, or ``people`` is missing.

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
            scores, same = check_pairs(*self._score_pairs(pairs))
            settings = self._store.settings()
            by, point = "far", choose_threshold(scores[~same], far=far)
            fitted = fit_probability(scores[same], scores[~same])
        else:
            assert fpir is not None
            rows, labels = self._read_strangers(strangers, people)
            settings = self._store.settings()
            examples = self._group_counterexamples(settings)
            nearest = self._find_nearest(rows, 1 + len(examples), settings)
            if examples:
                nearest = [
                    _lower_scores(row, candidates, examples, None)
                    for row, candidates in zip(rows, nearest, strict=True)
                ]
            best = torch.tensor([candidates[0][1] for candidates in nearest], dtype=torch.double)
            by, point = "fpir", choose_threshold(best, fpir=fpir, people=labels)
            counts = self._store.counts("", MAX_IDENTITIES_FOR_PROBABILITIES)
            several = [name for name, count in counts.items() if count > 1]
            fitted = fit_probability(collect_same_scores(rows, labels, several, self._store.features_of), best)
        interval = (point.rate.low, point.rate.high)
        rate = far if far is not None else fpir
        assert rate is not None
        size = _count_identities(settings)
        calibration = Calibration(point.threshold, by, rate, size, float(point.rate), interval, point.people)
        if fitted is not None:
            calibration = calibration._replace(slope=fitted[0], offset=fitted[1])
        self._store.put({f"calibration_{by}": calibration.to_text()})
        warning = calibration.warning(size)
        if warning is not None:
            warnings.warn(warning, stacklevel=2)
        return calibration

    @property
    def calibrations(self) -> dict[Rate, Calibration]:
        """The stored calibrations by the kind of their rate, ``"far"`` or ``"fpir"``."""
        return _read_calibrations(self._store.settings())

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
            score: A score to use instead of the cosine; needs ``threshold``.

        Returns:
            One match per probe.

        Raises:
            ValueError: If the identity is unknown or there is no threshold.
        """
        rows, settings = self._read_features(probes)[0], self._store.settings()
        calibration = _read_calibrations(settings).get("far")
        if threshold is None:
            threshold = _get_stored_threshold(
                calibration, score, "far and pairs (`hypersphere gallery calibrate --far`)"
            )
        templates = self._store.features_of(normalize_name(identity))
        if templates is None:
            raise ValueError(f"identity {identity!r} is not in the gallery")
        _check_dim(rows, settings)
        scores = self._score_identity(normalize_name(identity), rows, templates, score, settings)
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

        Ties are ordered by enrollment: the identity enrolled first comes first.

        Args:
            probes: Features or pictures; see the class.
            k: The number of candidates per probe; fewer if fewer identities are enrolled.
            threshold: The lowest score to accept; by default the one calibrated by ``fpir``, or else by ``far``.
            score: A score to use instead of the cosine; needs ``threshold``.
            among: The number of identities, nearest by cosine, for which ``score`` or ``rerank`` is computed.
            rerank: Order the candidates by :func:`hypersphere.evaluation.rerank`, which also counts the common neighbors
                of probe and templates. Scores remain cosines, so reranking does not accept more strangers.
            approximate: Search with the index of :meth:`build_index`, which may miss neighbors.
            choose: Which faces of a photograph are probes: ``"all"``, ``"largest"``, ``"central"`` or ``"refuse"``; by
                default the setting of the embedder's preprocessing.

        Returns:
            One :class:`Identification` per probe, which is a feature, a picture or, with ``choose="all"``, a face.

        Raises:
            ValueError: If the gallery is empty or there is no threshold.
        """
        if k < 1 or among < 1:
            raise ValueError(f"k and among must be integers ≥ 1, got {k!r} and {among!r}")
        if rerank and score is not None:
            raise ValueError("rerank and score must not both be given: each of them orders the candidates")
        rows, sources, info = self._read_probes(probes, choose)
        settings = self._store.settings()
        if not _count_identities(settings):
            raise self._empty_error()
        stored = _read_calibrations(settings)
        calibration = stored.get("fpir", stored.get("far"))
        if threshold is None:
            threshold = _get_stored_threshold(
                calibration, score, "fpir and strangers (`hypersphere gallery calibrate --fpir`)"
            )
            warning = None if calibration is None else calibration.warning(_count_identities(settings))
            if warning is not None:
                warnings.warn(warning, stacklevel=2)
        examples = self._group_counterexamples(settings)
        # Counter-examples lower the score of at most len(examples) identities and raise none, so this many more suffice.
        depth = (k if score is None and not rerank else max(k, among)) + len(examples)
        fitted = calibration if calibration is not None and score is None else Calibration(threshold, "far", 0.0, 0)
        answers = []
        nearest = self._find_nearest(rows, depth, settings, approximate)
        for row, candidates, one, source in zip(rows, nearest, info, sources, strict=True):
            if score is not None:
                candidates = self._rescore(row, candidates, score)
            if examples:
                candidates = _lower_scores(row, candidates, examples, score)
            if rerank:
                candidates = self._rerank(row, candidates[: max(k, among)])
            matches = (
                Match(name, value, value >= threshold, fitted.probability(value)) for name, value in candidates[:k]
            )
            answers.append(Identification(tuple(matches), one, source))
        return answers

    def build_index(self, k: int = 10, probes: int = 100) -> Recall:
        """Build an approximate index (HNSW) of a gallery on a server, and return its recall.

        Templates enrolled later are added to the index automatically. A gallery in a file is always searched exactly.

        Args:
            k: The number of neighbors per probe when measuring recall.
            probes: The number of templates used as probes.
        """
        return self._store.build_index(k, probes)

    def check(self) -> Sequence[str]:
        """Verify all checksums and return a list of problems, empty if there are none."""
        return self._store.check()

    def backup(self, target: str | Path) -> None:
        """Write a consistent copy to the new file ``target``. Others can read meanwhile. The copy of a server is a file too.

        The gallery records its copies, so that :meth:`forget` can list those that contain an identity. A gallery opened
        readonly cannot record them.
        """
        self._store.backup(Path(target))
        self.remember_copy(target)

    def remember_copy(self, target: str | Path) -> None:
        """Record a copy of this gallery at ``target`` for :meth:`forget`. Does nothing if the gallery is readonly."""
        entry = {"path": encode_source_path(target), "date": datetime.date.today().isoformat()}
        copies = json.loads(self._store.settings().get("backups") or "[]")
        if not self._store.readonly:  # a gallery on read-only media cannot be changed
            others = [copy for copy in copies if copy["path"] != entry["path"]]
            self._store.put({"backups": json.dumps([*others, entry])})

    def close(self) -> None:
        """Close the gallery, which cannot be used afterwards."""
        self._store.close()

    def __enter__(self) -> "Gallery":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __len__(self) -> int:
        return _count_identities(self._store.settings())

    def __contains__(self, identity: str) -> bool:
        return self.count(identity) > 0

    def _read_features(self, samples: Any) -> tuple[Float[Tensor, "n d"], Sequence[str]]:
        """Return checked features, and the paths of the pictures if they have any."""
        rows, paths, _ = self._read_probes(samples, None)
        return rows, paths if any(paths) else []

    def _read_probes(
        self, probes: Any, choose: str | None
    ) -> tuple[Float[Tensor, "n d"], Sequence[str], Sequence[Mapping[str, Any]]]:
        """Return checked features, and per feature the path of its picture ("" if unknown) and the face information."""
        if self._refuses_features:
            raise ValueError(
                f"the gallery {self.path} holds features of model {_shorten(self.fingerprint)}: open it with that model"
            )
        paths: Sequence[str] = []
        info: Sequence[Mapping[str, Any]] = []
        if isinstance(probes, Tensor) and probes.is_floating_point() and (probes.ndim < 3 or self.embedder is None):
            features = probes
        elif self.embedder is None:
            raise ValueError(
                f"a gallery that is opened without an embedder takes features, a floating-point tensor of shape (d,) "
                f"or (n, d), got {type(probes).__name__}: open it with Gallery(path, embedder)"
            )
        elif _is_picture_set(probes):
            embedded = embed(self.embedder, probes, choose=choose)
            features, info, paths = (
                embedded.features,
                embedded.info,
                [encode_source_path(name) for name in embedded.files],
            )
        else:
            features, owners, info = embed_samples(self.embedder, probes, choose)
            samples = probes if isinstance(probes, list | tuple) else [probes]
            if all(isinstance(sample, str | os.PathLike) for sample in samples):
                paths = [encode_source_path(samples[i]) for i in owners]
        rows = features.detach().cpu().float()
        rows = rows[None] if rows.ndim == 1 else rows
        if rows.ndim != 2 or not rows.numel():
            raise ValueError(f"features must have shape (d,) or (n, d), got {tuple(features.shape)}")
        if not rows.isfinite().all():
            raise ValueError("features must be finite, got NaN or infinity")
        return rows, paths or [""] * len(rows), info or [MappingProxyType({})] * len(rows)

    def _list_copies(self) -> Sequence[str]:
        return [copy["path"] for copy in json.loads(self._store.settings().get("backups") or "[]")]

    def _forget_in_copy(self, path: str, name: str, erase: bool) -> str | None:
        """Erase an identity from a copy if ``erase``; return the reason if the copy may still contain it, else None."""
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

    def _group_counterexamples(self, settings: Settings) -> dict[str, Tensor]:
        """Return the features of the counter-examples of each identity that has any."""
        if not int(settings.get("counterexamples") or 0):
            return {}
        groups: dict[str, list[Tensor]] = {}
        for example in self._store.counterexamples():
            groups.setdefault(example.identity, []).append(example.feature)
        return {name: torch.stack(rows) for name, rows in groups.items()}

    def _score_identity(
        self, name: str, rows: Tensor, templates: Tensor, score: Scoring | None = None, settings: Settings | None = None
    ) -> Sequence[float]:
        """Return the best score of each row with the templates of an identity, lowered by its counter-examples."""
        scores = cosine(rows, templates, pairwise=True) if score is None else score(rows, templates)
        best = scores.amax(1).tolist()
        examples = self._group_counterexamples(self._store.settings() if settings is None else settings)
        if name not in examples:
            return best
        return [_lower_scores(row, [(name, s)], examples, score)[0][1] for row, s in zip(rows, best, strict=True)]

    def _score_templates(self, name: str, templates: Tensor) -> Sequence[float]:
        """Return the score of each template of an identity with its other templates, [] for a single template."""
        if len(templates) < 2:
            return []
        return [
            self._score_identity(name, row[None], torch.cat([templates[:i], templates[i + 1 :]]))[0]
            for i, row in enumerate(templates)
        ]

    def _read_strangers(
        self, strangers: Any, people: Sequence[Hashable] | Tensor | None
    ) -> tuple[Float[Tensor, "n d"], Int[Tensor, "n"]]:
        """Return the features of strangers and the number of the person of each feature."""
        if people is None and self.embedder is not None and _is_picture_set(strangers):
            embedded = embed(self.embedder, strangers)
            strangers, people = embedded.features, embedded.labels
        rows = self._read_features(strangers)[0]
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

    def _score_pairs(self, pairs: Any) -> tuple[Tensor, Tensor]:
        """Return the scores of pairs and whether both samples of a pair show the same person."""
        if isinstance(pairs, tuple) and all(isinstance(part, Tensor) and part.ndim < 2 for part in pairs):
            scores, same = pairs
            return scores, same
        if self.embedder is None:
            raise ValueError("pairs must be a tuple of scores and same, unless the gallery is opened with an embedder")
        return score_all_pairs(embed(self.embedder, open_source(pairs)))

    def _find_nearest(
        self, rows: Tensor, k: int, settings: Settings, approximate: bool = False
    ) -> Sequence[Candidates]:
        if not _count_identities(settings):
            raise self._empty_error()
        _check_dim(rows, settings)
        return self._store.nearest(rows, k, approximate)

    def _empty_error(self) -> ValueError:
        return ValueError(f"the gallery {self.path} is empty: enroll someone first")

    def _rescore(self, row: Tensor, candidates: Candidates, score: Scoring) -> Candidates:
        """Return the same identities with ``score`` instead of the cosine, best first."""
        scores = {}
        for name, _ in candidates:
            templates = self._store.features_of(name)
            if templates is not None:  # it may have been removed since the search
                scores[name] = score(row[None], templates).max().item()
        return sorted(scores.items(), key=lambda item: -item[1])

    def _rerank(self, row: Tensor, candidates: Candidates) -> Candidates:
        """Return the candidates with unchanged scores, ordered by the neighbors that they share with the probe."""
        stored = {name: self._store.features_of(name) for name, _ in candidates}
        templates = {name: rows for name, rows in stored.items() if rows is not None}  # None: removed since the search
        if not templates:
            return []
        values = rerank_features(row[None], torch.cat(list(templates.values())))[0]
        parts = values.split([len(rows) for rows in templates.values()])
        best = {name: part.max().item() for name, part in zip(templates, parts, strict=True)}
        return sorted((item for item in candidates if item[0] in best), key=lambda item: -best[item[0]])


def _lower_scores(
    row: Tensor, candidates: Candidates, examples: dict[str, Tensor], score: Scoring | None
) -> Candidates:
    """Lower the score of candidates whose counter-examples are nearer than their templates; return all, best first."""
    lowered = []
    for name, value in candidates:
        if name in examples:
            rows = examples[name]
            scores = cosine(row[None], rows, pairwise=True) if score is None else score(row[None], rows)
            value = min(value, 2 * value - scores.max().item())
        lowered.append((name, value))
    return sorted(lowered, key=lambda item: -item[1])


def check_templates(features: Float[Tensor, "n d"]) -> None:
    """Raise a ``ValueError`` unless all features are finite and nonzero. Call it before creating a gallery for them."""
    if not features.isfinite().all():
        raise ValueError("features must be finite, got NaN or infinity")
    if not (features != 0).any(1).all():
        raise ValueError("features must have a direction, got a row of zeros")


def encode_source_path(path: str | os.PathLike[str]) -> str:
    """Return the absolute path of a picture as valid UTF-8 text, which every store accepts.

    >>> encode_source_path("/photos/ann/1.png")
    '/photos/ann/1.png'
    """
    return os.fsencode(Path(path).absolute()).decode("utf-8", "backslashreplace")


def _is_picture_set(samples: Any) -> bool:
    """Return whether the argument is a source, or a path of one, rather than a single picture or recording."""
    if isinstance(samples, str | os.PathLike):
        return Path(samples).is_dir() or not os.fspath(samples).lower().endswith(SAMPLE_ENDINGS)
    return isinstance(samples, Source)


def _read_calibrations(settings: Settings) -> dict[Rate, Calibration]:
    kinds: tuple[Rate, Rate] = ("far", "fpir")
    texts = {by: settings.get(f"calibration_{by}") for by in kinds}
    return {by: Calibration.from_text(text) for by, text in texts.items() if text is not None}


def _count_identities(settings: Settings) -> int:
    return int(settings["people"] or 0)


def _check_dim(rows: Tensor, settings: Settings) -> None:
    dim = int(settings.get("dim") or 0)
    if rows.shape[1] != dim:
        raise ValueError(f"features must have dimension {dim}, that of the gallery, got {rows.shape[1]}")


def _get_stored_threshold(calibration: Calibration | None, score: Scoring | None, arguments: str) -> float:
    if score is not None:
        raise ValueError("threshold must be given with another score, because the calibrated threshold is a cosine")
    if calibration is None:
        raise ValueError(f"the gallery has no threshold for this: calibrate it with {arguments}, or give threshold")
    return calibration.threshold


def _shorten(fingerprint: str | None) -> str:
    return "unknown" if fingerprint is None else fingerprint[:12]


def _compute_fingerprint(model: nn.Module) -> str:
    known = getattr(model, "fingerprint", None)
    return known if isinstance(known, str) else checksum({}, model.state_dict())
