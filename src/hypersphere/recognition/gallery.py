"""Known identities: enrol, verify, identify with rejection of strangers, calibrate, remove, list, check, back up."""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from ..evaluation.roc import threshold_at_far
from ..files import checksum
from ..geometry import cosine
from .calibrating import Calibration, threshold_at_fpir
from .stores import Recall, normal_name, open_store

Scoring = Callable[[Float[Tensor, "p d"], Float[Tensor, "t d"]], Float[Tensor, "p t"]]
"""Scores of probes with templates, higher for the same identity, such as a normalised or a quality-aware cosine."""


class Match(NamedTuple):
    """An identity and the score of its best template; ``accepted`` says whether that reaches the threshold.

    >>> match = Match("ada", 0.93, accepted=True)
    >>> match.identity if match.accepted else "unknown"
    'ada'
    """

    identity: str
    score: float
    accepted: bool


class Gallery:
    """Identities with one or more templates each, kept in a file or on a server.

    Every change is one transaction: when a method returns, the change is on disk, and a process killed before that
    leaves nothing of it. Any number of processes may read while one writes. Names are compared in Unicode's composed
    form (NFC). What is stored carries checksums that are compared when it is read.

    Args:
        path: A file, made if there is none (its features lie in a second file beside it); ``":memory:"`` for one that
            is gone when closed; or ``postgresql://user@host/database#name`` for one on a server with pgvector.
        model: The module that makes the features, or its fingerprint. It is remembered when the gallery is made, and
            another model's features are refused. Without it, a gallery of a fingerprinted model can only be listed,
            checked, copied and have identities removed.
        create: Whether a gallery that is missing is made.
        readonly: Refuses every change. A file that cannot be written to, as on read-only media, is opened so anyway.

    Raises:
        ValueError: When there is no such gallery, or it is another model's.
        OSError: When the file or the server cannot be used.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Gallery(f"{folder}/people.db") as gallery:
    ...     _ = gallery.enrol("ada", torch.tensor([[1.0, 0.0], [0.9, 0.1]]))
    ...     _ = gallery.enrol("bob", torch.tensor([0.0, 1.0]))
    ...     gallery.identify(torch.tensor([[2.0, 0.1]]), threshold=0.8)[0][0].identity, gallery.list()
    ('ada', {'ada': 2, 'bob': 1})
    """

    def __init__(
        self,
        path: str | Path,
        model: nn.Module | str | None = None,
        *,
        create: bool = True,
        readonly: bool = False,
    ):
        given = _fingerprint(model) if isinstance(model, nn.Module) else model
        self._store = open_store(path, given, create=create, readonly=readonly)
        self.path = self._store.location
        try:
            kept = self._store.get("fingerprint")
            if given is not None and given != kept:
                raise ValueError(
                    f"the gallery {self.path} holds features of model {_short(kept)}, "
                    f"got features of model {_short(given)}"
                )
        except BaseException:
            self.close()
            raise
        self.fingerprint, self._anonymous = kept, given is None and kept is not None

    def enrol(
        self,
        identity: str | Sequence[str],
        features: Float[Tensor, "*n d"],
        sources: Sequence[str] | None = None,
    ) -> Sequence[int]:
        """Add templates in one transaction and return their numbers. On disk when this returns.

        Args:
            identity: Whose templates they are, new or known: one name for all, or one for each row. Many rows at once
                are much quicker than many calls, each of which waits for the disk.
            features: One template ``(d,)``, or several ``(n, d)``.
            sources: The file that each comes from. A source that the identity has already is not doubled: the new
                template takes the place of the old one.
        """
        rows = self._check(features)
        if not isinstance(identity, str) and len(identity) != len(rows):
            raise ValueError(
                f"identity must be one name, or a name for each of {len(rows)} features, got {len(identity)}"
            )
        given = [identity] * len(rows) if isinstance(identity, str) else identity
        normal = {name: normal_name(name) for name in dict.fromkeys(given)}
        sources = [""] * len(rows) if sources is None else list(sources)
        if len(sources) != len(rows):
            raise ValueError(f"sources must name each of {len(rows)} features, got {len(sources)}")
        if not (rows != 0).any(1).all():
            raise ValueError("features must have a direction, got a row of zeros")
        if self._store.get("dim") is not None:
            self._check_dim(rows)
        return self._store.enrol([normal[name] for name in given], rows, sources)

    def remove(self, identity: str) -> int:
        """Forget an identity and return how many templates it had. An unknown one is a ``ValueError``."""
        count = self._store.remove(normal_name(identity))
        if count is None:
            raise ValueError(f"identity {identity!r} is not in the gallery")
        return count

    def list(self) -> dict[str, int]:
        """Return the identities in alphabetical order, with the number of their templates."""
        return self._store.counts()

    def calibrate(self, scores: Shaped[Tensor, "..."], same: Shaped[Tensor, "..."], far: float) -> float:
        """Set the threshold to accept at most ``far`` of the different pairs among calibration pairs, and keep it.

        This is the rate of one comparison, which is what :meth:`verify` makes. :meth:`identify` compares with everyone:
        of N identities a stranger meets about 1 − (1 − far)^N that accept him, so calibrate it by
        :meth:`calibrate_fpir`. The people of the pairs must be none that the model was trained on: it knows those, and
        their scores promise too much.
        """
        return self._keep(Calibration(threshold_at_far(scores, same, far), "far", far, self._store.size()))

    def calibrate_fpir(self, strangers: Float[Tensor, "n d"], fpir: float) -> float:
        """Set the threshold to accept at most ``fpir`` of strangers against this gallery as it is, and keep it.

        Args:
            strangers: Features of people who are neither enrolled nor were trained on; at least 1/fpir of them.
            fpir: The false positive identification rate: the share of strangers who are taken for somebody.
        """
        return self._keep(Calibration(threshold_at_fpir(self._best(strangers), fpir), "fpir", fpir, self._store.size()))

    @property
    def calibration(self) -> Calibration | None:
        """What was calibrated last, None before."""
        return Calibration.from_text(self._store.get("calibration"))

    @property
    def threshold(self) -> float | None:
        """The threshold of the last calibration, None before."""
        found = self.calibration
        return None if found is None else found.threshold

    def verify(
        self,
        identity: str,
        features: Float[Tensor, "*n d"],
        threshold: float | None = None,
        *,
        score: Scoring | None = None,
    ) -> Sequence[Match]:
        """Return for each feature whether it is of this identity. The score is that of its best template."""
        rows, threshold = self._check(features), self._threshold(threshold, score)
        own = self._store.features_of(normal_name(identity))
        if own is None:
            raise ValueError(f"identity {identity!r} is not in the gallery")
        self._check_dim(rows)
        found = cosine(rows, own, pairwise=True) if score is None else score(rows, own)
        return [Match(identity, best, best >= threshold) for best in found.amax(1).tolist()]

    def identify(
        self,
        features: Float[Tensor, "*n d"],
        k: int = 1,
        threshold: float | None = None,
        *,
        score: Scoring | None = None,
        among: int = 100,
        approximate: bool = False,
    ) -> Sequence[Sequence[Match]]:
        """Return the ``k`` likeliest identities of each feature, best first; nobody is accepted below the threshold.

        Of equal scores the identity enrolled first comes first. Fewer than ``k`` when fewer are enrolled.

        Args:
            features: Probes ``(d,)`` or ``(n, d)``.
            k: How many identities to return.
            threshold: The least score to accept; by default the calibrated one.
            score: Another score than the cosine, which needs a threshold of its own.
            among: The identities nearest by cosine that ``score`` is computed for.
            approximate: Search by the index of :meth:`build_index`, which may miss neighbours.
        """
        if threshold is None and score is None:
            found = self.calibration
            warning = None if found is None else found.warning(self._store.size())
            if warning is not None:
                warnings.warn(warning, stacklevel=2)
        rows, threshold = self._check(features), self._threshold(threshold, score)
        if k < 1 or among < 1:
            raise ValueError(f"k and among must be integers ≥ 1, got {k!r} and {among!r}")
        nearest = self._nearest(rows, k if score is None else max(k, among), approximate)
        if score is not None:
            nearest = [self._scored(row, near, score) for row, near in zip(rows, nearest, strict=True)]
        return [[Match(name, value, value >= threshold) for name, value in near[:k]] for near in nearest]

    def build_index(self, k: int = 10, probes: int = 100) -> Recall:
        """Build an approximate index (HNSW) of a gallery on a server, and return its measured recall.

        Templates enrolled later enter it by themselves. A gallery in a file is always searched exactly.
        """
        return self._store.build_index(k, probes)

    def check(self) -> Sequence[str]:
        """Read everything, compare it with its checksums, and return what is wrong; nothing if all is well."""
        return self._store.check()

    def backup(self, target: str | Path) -> None:
        """Write a consistent copy to the new file ``target`` while others go on reading; of a server too, as a file."""
        self._store.backup(Path(target))

    def close(self) -> None:
        """Close the gallery, which cannot be used afterwards."""
        self._store.close()

    def __enter__(self) -> "Gallery":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __len__(self) -> int:
        return self._store.size()

    def __contains__(self, identity: str) -> bool:
        return self._store.features_of(normal_name(identity)) is not None

    def _keep(self, found: Calibration) -> float:
        self._store.put({"calibration": found.to_text()})
        warning = found.warning(found.size)
        if warning is not None:
            warnings.warn(warning, stacklevel=3)
        return found.threshold

    def _best(self, features: Tensor) -> Float[Tensor, "n"]:
        nearest = self._nearest(self._check(features), 1)
        return torch.tensor([near[0][1] for near in nearest], dtype=torch.double)

    def _nearest(self, rows: Tensor, k: int, approximate: bool = False) -> Sequence[Sequence[tuple[str, float]]]:
        if not self._store.size():
            raise ValueError(f"the gallery {self.path} is empty: enrol someone first")
        self._check_dim(rows)
        return self._store.nearest(rows, k, approximate)

    def _scored(self, row: Tensor, near: Sequence[tuple[str, float]], score: Scoring) -> Sequence[tuple[str, float]]:
        """The same identities by another score, best first."""
        found = {}
        for name, _ in near:
            own = self._store.features_of(name)
            if own is not None:  # removed meanwhile
                found[name] = score(row[None], own).max().item()
        return sorted(found.items(), key=lambda one: -one[1])

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
        dim = int(self._store.get("dim") or 0)
        if rows.shape[1] != dim:
            raise ValueError(f"features must have dimension {dim}, that of the gallery, got {rows.shape[1]}")

    def _threshold(self, given: float | None, score: Scoring | None) -> float:
        if given is None and score is not None:
            raise ValueError("threshold must be given with a score of one's own: the calibrated one is a cosine")
        threshold = self.threshold if given is None else given
        if threshold is None:
            raise ValueError("threshold must be given, or the gallery calibrated with pairs and a false accept rate")
        return threshold


def _short(fingerprint: str | None) -> str:
    return "unknown" if fingerprint is None else fingerprint[:12]


def _fingerprint(model: nn.Module) -> str:
    known = getattr(model, "fingerprint", None)
    return known if isinstance(known, str) else checksum({}, model.state_dict())
