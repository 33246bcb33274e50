"""Migration of galleries to another model: by the pictures where they still exist, otherwise by a learned rotation."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..data.sources import open_source
from ..evaluation import choose_threshold
from ..files import is_running
from ..geometry import normalize
from .calibration import Calibration
from .embedder import Embedder
from .features import Features, embed
from .gallery import Gallery, source_name
from .stores import Templates

MIN_COMMON = 8  # pictures with features of both models from which a map is learned
LOSS_FPIR = 0.01  # the rate at which the loss is measured


class MappingLoss(NamedTuple):
    """Identification with mapped templates, beside templates of the new model, on people that the map has not seen.

    Attributes:
        rank_1_mapped: The share of probes whose best identity is right, with mapped templates.
        rank_1: The same with templates of the new model.
        tpir_mapped: The share of probes identified correctly at FPIR ``fpir``, with mapped templates.
        tpir: The same with templates of the new model.
        fpir: The false positive identification rate, 0.01, or 1/people if there are fewer than 100.
        people: People that were measured.
    """

    rank_1_mapped: float
    rank_1: float
    tpir_mapped: float
    tpir: float
    fpir: float
    people: int


class Migration(NamedTuple):
    """The result of :func:`migrate`.

    Attributes:
        identities: People in the new gallery.
        embedded: Templates computed by the new model from their pictures.
        mapped: Templates mapped from the old ones.
        common: Pictures that the map was learned from.
        loss: The measured loss of mapped templates, None if nothing was mapped or too few people have two pictures.
        calibrations: Thresholds of the new gallery, at the rates of the old one.
        notes: Things to know, such as a rate that could not be calibrated again.

    >>> Migration(10, embedded=30, mapped=0, common=30, loss=None, calibrations=[], notes=[]).identities
    10
    """

    identities: int
    embedded: int
    mapped: int
    common: int
    loss: MappingLoss | None
    calibrations: Sequence[Calibration]
    notes: Sequence[str]


def migrate(
    old: Gallery,
    model: Embedder,
    target: str | Path,
    *,
    old_model: Embedder | None = None,
    pictures: Any = None,
    common: Any = None,
    key: bytes | str | os.PathLike[str] | None = None,
) -> Migration:
    """Write a gallery of another model to ``target``. The old gallery is not changed, except that it notes the copy.

    Templates whose pictures exist are embedded by the new model. For the others an orthogonal map from the old to the new
    feature space is learned from pictures with features of both models: the templates whose pictures exist, and
    ``common``. Thresholds are calibrated again at the same rates, with the people whose pictures were read: each is
    compared with everybody else. The new gallery appears at ``target`` only after it was checked and compared with the
    old one.

    Args:
        old: The gallery to migrate.
        model: The new model.
        target: The new file.
        old_model: The model of the old gallery; needed with ``common``.
        pictures: Where the enrolled pictures are now, if they were moved: anything that ``open_source`` takes. They are
            found by the person's name and the file's name.
        common: Pictures of anybody, one folder per person, that both models embed.
        key: Encrypts the new gallery; see :class:`Gallery`.

    Returns:
        What was done, and the measured loss.

    Raises:
        ValueError: If a template can be neither embedded nor mapped, or there is a file at ``target``.
        OSError: If the new gallery does not pass its check.

    >>> with Gallery("people.db") as old:  # doctest: +SKIP
    ...     migrate(old, hs.load("new-model.safetensors"), "new.db").embedded
    30
    """
    if Path(target).exists():
        raise ValueError(f"there is a file at {target} already: a migration replaces nothing")
    if common is not None and old_model is None:
        raise ValueError("old_model must be given with common, because both models embed those pictures")
    if old_model is not None and old_model.fingerprint != old.fingerprint:
        raise ValueError(f"old_model must be the model of {old.path}, got another one")
    found = old.templates()
    if not found.identities:
        raise ValueError(f"the gallery {old.path} is empty: there is nothing to migrate")
    new = _embed_sources(model, found, pictures)
    pairs = _collect_pairs(found, new, old_model, model, common)
    missing = [i for i in range(len(found.identities)) if i not in new]
    notes: list[str] = []
    loss = None
    if missing:
        if len(pairs.old) < MIN_COMMON:
            raise ValueError(
                f"{len(missing)} of {len(found.identities)} pictures are missing, such as "
                f"{found.sources[missing[0]] or 'one without a source'}, and {len(pairs.old)} pictures with features of both "
                f"models are too few to learn a map: {MIN_COMMON} are needed. Give the moved pictures (--pictures), or "
                "pictures of anybody and the old model (--common, --old-model)"
            )
        mapped = learn_map(pairs.old, pairs.new)(found.features[missing])
        for i, row in zip(missing, mapped.float(), strict=True):
            new[i] = row
        loss = measure_loss(pairs.old, pairs.new, pairs.people)
        if loss is None:
            notes.append("the loss of the map was not measured: it takes 10 people with two pictures of both models")
    with _temporary_gallery(target, model, key) as gallery:
        order = sorted(new)
        gallery.enrol(
            [found.identities[i] for i in order],
            torch.stack([new[i] for i in order]),
            [found.sources[i] for i in order],
        )
        calibrations = _calibrate(old, gallery, pairs, notes)
        _verify(old, gallery)
        gallery._store.backup(Path(target))
    with Gallery(target, model, create=False, key=key) as gallery:
        _verify(old, gallery)
        count = len(gallery)
    old.remember_copy(target)
    embedded = len(new) - len(missing)
    return Migration(count, embedded, len(missing), len(pairs.old), loss, calibrations, notes)


class FeatureMap(NamedTuple):
    """An orthogonal map of directions about their means: x̂ → μ_new + s (x̂ − μ_old) M, scaled to length 1.

    Attributes:
        rotation: M, with orthonormal rows or columns.
        old_mean: μ_old.
        new_mean: μ_new.
        scale: s, the spread of the new directions over that of the old ones.

    >>> x = torch.randn(50, 3)
    >>> learn_map(x, x)(x).shape
    torch.Size([50, 3])
    """

    rotation: Float[Tensor, "d e"]
    old_mean: Float[Tensor, "d"]
    new_mean: Float[Tensor, "e"]
    scale: float

    def __call__(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n e"]:
        """Return mapped features of length 1, in float64."""
        centered = normalize(features.double()) - self.old_mean
        return normalize(self.new_mean + self.scale * centered @ self.rotation)


def learn_map(old: Float[Tensor, "n d"], new: Float[Tensor, "n e"]) -> FeatureMap:
    """Return the orthogonal map M with the least Σ ‖s (x̂ᵢ − μ_old) M − (ŷᵢ − μ_new)‖² over directions x̂ and ŷ.

    With the singular value decomposition X̂ᵀŶ = UΣVᵀ of the centered directions it is M = UVᵀ, the polar factor of their
    cross-covariance (Schönemann, 1966). If the dimensions differ, M has orthonormal rows or columns. Some networks, such as
    dlib's, give features with a mean far from 0, which no rotation reaches; the means are therefore mapped to each other. A
    mean of few pictures is shrunk towards 0 (James and Stein, 1961).

    Args:
        old: Features of the old model.
        new: Features of the same pictures by the new model.

    >>> x = torch.randn(50, 3)
    >>> rotation = torch.linalg.qr(torch.randn(3, 3)).Q
    >>> torch.allclose(learn_map(x, x @ rotation).rotation.float(), rotation, atol=1e-5)
    True
    """
    sides = [normalize(features.double()) for features in (old, new)]
    means = [_shrink_mean(side) for side in sides]
    x, y = (side - mean for side, mean in zip(sides, means, strict=True))
    u, _, v = torch.linalg.svd(x.T @ y, full_matrices=False)
    return FeatureMap(u @ v, means[0], means[1], float(y.norm() / x.norm()))


def _shrink_mean(directions: Float[Tensor, "n d"]) -> Float[Tensor, "d"]:
    """Return the mean of directions, shrunk by the share of its squared length that chance explains."""
    mean = directions.mean(0)
    length = float(mean.square().sum())
    if length == 0:
        return mean
    return mean * max(0.0, 1 - (1 - length) / ((len(directions) - 1) * length))


def measure_loss(
    old: Float[Tensor, "n d"], new: Float[Tensor, "n e"], people: Int[Tensor, "n"], folds: int = 2
) -> MappingLoss | None:
    """Measure identification with mapped templates on people that the map was not learned from.

    People are divided into ``folds``; the map for one fold is learned from the others. The first picture of each person
    is the template, the others are probes of the new model. A probe counts as a stranger's when it is compared with
    everybody else.

    Args:
        old: Features of the old model.
        new: Features of the same pictures by the new model.
        people: Who is on each picture.
        folds: Parts of the people.

    Returns:
        The rates, None if fewer than ten people have two pictures.
    """
    names, inverse, counts = people.unique(return_inverse=True, return_counts=True)
    several = (counts >= 2).nonzero().flatten()
    if len(several) < 10:
        return None
    parts = []
    for fold in range(folds):
        held = inverse % folds == fold
        if held.all() or not held.any():
            return None
        learned = learn_map(old[~held], new[~held])
        rows = held.nonzero().flatten()
        first = torch.stack([rows[inverse[rows] == one][0] for one in inverse[rows].unique()])
        probes = rows[~torch.isin(rows, first)]
        templates = (learned(old[first]), new[first].double())
        parts.append([_score_probes(new[probes].double(), side, inverse[probes], inverse[first]) for side in templates])
    total = len(names)
    fpir = max(LOSS_FPIR, 1 / max(1, sum(len(part[0][0]) for part in parts)))
    rates = []
    for side in range(2):
        own, other = (torch.cat([part[side][i] for part in parts]) for i in range(2))
        threshold = choose_threshold(other, fpir=fpir).threshold
        rates.append(
            ((own > other).double().mean().item(), ((own > other) & (own >= threshold)).double().mean().item())
        )
    return MappingLoss(rates[0][0], rates[1][0], rates[0][1], rates[1][1], fpir, total)


class _Pairs(NamedTuple):
    """Pictures with features of both models, and who is on each."""

    old: Float[Tensor, "n d"]
    new: Float[Tensor, "n e"]
    people: Int[Tensor, "n"]
    names: Sequence[str]


def _embed_sources(model: Embedder, found: Templates, pictures: Any) -> dict[int, Tensor]:
    """Return features of the new model by the position of the template, where a picture is found."""
    elsewhere: dict[tuple[str, str], tuple[int, Any]] = {}
    if pictures is not None:
        source = open_source(pictures, identities=1, loose="keep")
        for i, record in enumerate(source.records):
            elsewhere[record.label, Path(record.name).name] = (i, source)
    new: dict[int, Tensor] = {}
    moved: list[tuple[int, int]] = []
    there: list[int] = []
    for i, (name, path) in enumerate(zip(found.identities, found.sources, strict=True)):
        if (name, Path(path).name) in elsewhere and path:
            moved.append((i, elsewhere[name, Path(path).name][0]))
        elif path and Path(path).is_absolute() and Path(path).is_file():
            there.append(i)
    if moved:
        part = source.part(torch.tensor([j for _, j in moved]))
        new.update(
            _by_position(embed(model, part, on_error="skip"), [r.name for r in part.records], [i for i, _ in moved])
        )
    if there:
        paths = [found.sources[i] for i in there]
        unique = list(dict.fromkeys(paths))
        result = embed(model, open_source(unique, identities=1, loose="keep"), on_error="skip")
        rows = {source_name(file): row for file, row in zip(result.files, result.features, strict=True)}
        new.update({i: rows[path] for i, path in zip(there, paths, strict=True) if path in rows})
    return new


def _by_position(result: Features, names: Sequence[str], positions: Sequence[int]) -> Mapping[int, Tensor]:
    rows = dict(zip(result.files, result.features, strict=True))
    return {i: rows[name] for name, i in zip(names, positions, strict=True) if name in rows}


def _collect_pairs(
    found: Templates, new: Mapping[int, Tensor], old_model: Embedder | None, model: Embedder, common: Any
) -> _Pairs:
    """Return all pictures with features of both models: enrolled ones whose picture exists, and ``common``."""
    order = sorted(new)
    names = [found.identities[i] for i in order]
    old_rows = [found.features[order]] if order else []
    new_rows = [torch.stack([new[i] for i in order])] if order else []
    if common is not None:
        assert old_model is not None
        source = open_source(common, identities=1)
        first, second = (embed(one, source, on_error="skip") for one in (old_model, model))
        both = [name for name in first.files if name in set(second.files)]
        for rows, result in ((old_rows, first), (new_rows, second)):
            place = {name: i for i, name in enumerate(result.files)}
            rows.append(result.features[[place[name] for name in both]])
        label = dict(zip(first.files, first.labels, strict=True))
        names += [label[name] for name in both]
    numbers = {name: i for i, name in enumerate(dict.fromkeys(names))}
    people = torch.tensor([numbers[name] for name in names], dtype=torch.long)
    if not old_rows:
        return _Pairs(torch.zeros(0, 1), torch.zeros(0, 1), people, names)
    return _Pairs(torch.cat(old_rows), torch.cat(new_rows), people, names)


def _score_probes(
    probes: Tensor, templates: Tensor, people: Int[Tensor, "p"], owners: Int[Tensor, "t"]
) -> tuple[Float[Tensor, "p"], Float[Tensor, "p"]]:
    """Return the best cosine of each probe with its own person and with everybody else."""
    cosines = normalize(probes) @ normalize(templates).T
    same = people[:, None] == owners
    return cosines.masked_fill(~same, -1.0).amax(1), cosines.masked_fill(same, -1.0).amax(1)


def _calibrate(old: Gallery, gallery: Gallery, pairs: _Pairs, notes: list[str]) -> Sequence[Calibration]:
    """Choose thresholds of the new gallery at the rates of the old one, with pictures of the new model."""
    made = []
    for by, before in old.calibrations.items():
        try:
            made.append(_calibrate_one(gallery, pairs, before))
        except ValueError as error:  # noqa: PERF203  (each rate on its own)
            notes.append(f"the threshold for {by}={before.rate:g} was not carried over, calibrate again: {error}")
    return made


def _calibrate_one(gallery: Gallery, pairs: _Pairs, before: Calibration) -> Calibration:
    if not len(pairs.new):
        raise ValueError("no pictures were read")
    stored = gallery.templates()
    numbers = {name: i for i, name in enumerate(dict.fromkeys([*stored.identities, *pairs.names]))}
    owners, people = (torch.tensor([numbers[name] for name in names]) for names in (stored.identities, pairs.names))
    best = []
    for part, who in zip(pairs.new.split(1024), people.split(1024), strict=True):
        cosines = normalize(part.double()) @ normalize(stored.features.double()).T
        cosines.masked_fill_(who[:, None] == owners, -1.0)
        best.append(cosines if before.by == "far" else cosines.amax(1))
    if before.by == "far":
        scores = torch.cat(best)
        point = choose_threshold(scores[scores > -1.0], far=before.rate)
    else:
        point = choose_threshold(torch.cat(best), fpir=before.rate, people=people)
    interval = (point.rate.low, point.rate.high)
    made = Calibration(point.threshold, before.by, before.rate, len(gallery), float(point.rate), interval, point.people)
    gallery._store.put({f"calibration_{made.by}": made.to_text()})
    return made


@contextmanager
def _temporary_gallery(target: str | Path, model: Embedder | str | None, key: Any) -> Iterator[Gallery]:
    """Yield a gallery in a folder beside ``target`` that is deleted at the end; a kill leaves nothing at ``target``."""
    folder = Path(target).absolute().parent
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder} to write {Path(target).name} into")
    for left in folder.glob(f".{Path(target).name}.*.making"):  # left over by a killed call
        if not is_running(int(left.name.split(".")[-2])):
            shutil.rmtree(left, ignore_errors=True)
    room = folder / f".{Path(target).name}.{os.getpid()}.making"
    room.mkdir(0o700)
    try:
        with Gallery(room / "new.db", model, key=key) as gallery:
            yield gallery
    finally:
        shutil.rmtree(room, ignore_errors=True)


def _verify(old: Gallery, new: Gallery) -> None:
    """Raise an ``OSError`` unless the new gallery is whole and has the people and the templates of the old one."""
    problems = new.check()
    if problems:
        raise OSError(f"the new gallery is damaged: {problems[0]}")
    if new.list() != old.list():
        raise OSError("the new gallery has not the same people and templates; was the old one changed meanwhile?")


def rekey(old: Gallery, target: str | Path, key: bytes | str | os.PathLike[str] | None) -> int:
    """Write a copy of a gallery with another key, or without one, and return the number of its identities.

    Stolen templates of the old gallery cannot be compared with those of the new one, because their secret rotations
    differ. Erase the old gallery yourself when the copy is in use.

    Args:
        old: The gallery, opened with its key.
        target: The new file.
        key: The new key; ``None`` writes a copy without encryption unless the environment has a key.

    Raises:
        ValueError: If there is a file at ``target``.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Gallery(f"{folder}/people.db") as old:
    ...     _ = old.enrol("ada", torch.ones(3))
    ...     rekey(old, f"{folder}/encrypted.db", bytes(32))
    1
    """
    if Path(target).exists():
        raise ValueError(f"there is a file at {target} already: a copy replaces nothing")
    found, settings = old.templates(), old._store.settings()
    with _temporary_gallery(target, old.fingerprint, key) as gallery:
        if found.identities:
            gallery.enrol(found.identities, found.features, found.sources)
        for one in old.counterexamples:
            gallery._store.reject(one.identity, one.feature[None], [one.source])
        gallery._store.put({k: v for k, v in settings.items() if k.startswith("calibration_")})
        _verify(old, gallery)
        gallery._store.backup(Path(target))
        count = len(gallery)
    old.remember_copy(target)
    return count
