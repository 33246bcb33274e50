"""Migration of galleries to another model: pictures are embedded again, missing ones are mapped by a learned rotation."""

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
from .gallery import Gallery, encode_source_path
from .stores import Templates

MIN_COMMON = 8  # pictures with features of both models that are needed to learn a map
LOSS_FPIR = 0.01  # the FPIR at which the loss is measured
MIN_PEOPLE_TO_MEASURE = 10  # people with two pictures


class MappingLoss(NamedTuple):
    """Identification with mapped templates and with templates of the new model, on people that the map was not learned from.

    Attributes:
        rank_1_mapped: The share of probes whose best identity is right, with mapped templates.
        rank_1: The same with templates of the new model.
        tpir_mapped: The share of probes identified correctly at FPIR ``fpir``, with mapped templates.
        tpir: The same with templates of the new model.
        fpir: The false positive identification rate, 0.01, or 1/people if there are fewer than 100.
        people: The number of people in the measurement.
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
        identities: The number of people in the new gallery.
        embedded: The number of templates computed from their pictures.
        mapped: The number of templates mapped from the old ones.
        common: The number of pictures that the map was learned from.
        loss: The measured loss of mapped templates, None if nothing was mapped or too few people have two pictures.
        calibrations: Thresholds of the new gallery, at the rates of the old one.
        notes: Messages for the user, such as a rate that could not be calibrated again.

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
    """Write a gallery of another model to ``target``. The old gallery only records the copy.

    Templates whose pictures exist are embedded by the new model. For the others an orthogonal map from the old to the new
    feature space is learned from pictures with features of both models: the templates whose pictures exist, and
    ``common``. Thresholds are calibrated again at the same rates, by comparing each person whose pictures were read
    with everybody else. The new gallery appears at ``target`` after it was checked and compared with the old one.

    Args:
        old: The gallery to migrate.
        model: The new model.
        target: The new file.
        old_model: The model of the old gallery; needed with ``common``.
        pictures: The enrolled pictures if they were moved: anything that ``open_source`` takes. They are matched by the
            name of the person and the name of the file.
        common: Pictures of any people, one folder per person, which both models embed.
        key: Encrypts the new gallery; see :class:`Gallery`.

    Returns:
        The numbers of templates, the measured loss and the new thresholds.

    Raises:
        ValueError: If a template can be neither embedded nor mapped, or ``target`` exists.
        OSError: If the new gallery does not pass its check.

    >>> with Gallery("people.db") as old:  # doctest: +SKIP
    ...     migrate(old, hs.load("new-model.safetensors"), "new.db").embedded
    30
    """
    if Path(target).exists():
        raise ValueError(f"there is a file at {target} already: a migration overwrites nothing; choose a new name")
    if common is not None and old_model is None:
        raise ValueError("old_model must be given with common, because both models embed those pictures")
    if old_model is not None and old_model.fingerprint != old.fingerprint:
        raise ValueError(f"old_model must be the model of {old.path}, got another model")
    templates = old.templates()
    if not templates.identities:
        raise ValueError(f"the gallery {old.path} is empty: there is nothing to migrate")
    new = _embed_sources(model, templates, pictures)
    pairs = _collect_pairs(templates, new, old_model, model, common)
    missing = [i for i in range(len(templates.identities)) if i not in new]
    notes: list[str] = []
    loss = None
    if missing:
        if len(pairs.old) < MIN_COMMON:
            raise ValueError(
                f"{len(missing)} of {len(templates.identities)} pictures are missing, such as "
                f"{templates.sources[missing[0]] or 'one without a source'}, and {len(pairs.old)} pictures with features of both "
                f"models are too few to learn a map: {MIN_COMMON} are needed. Give the moved pictures (--pictures), or "
                "pictures of any people and the old model (--common, --old-model)"
            )
        mapped = learn_map(pairs.old, pairs.new)(templates.features[missing])
        for i, row in zip(missing, mapped.float(), strict=True):
            new[i] = row
        loss = measure_loss(pairs.old, pairs.new, pairs.people)
        if loss is None:
            notes.append("the loss of the map was not measured, because this needs 10 people with two pictures each")
    with _temporary_gallery(target, model, key) as gallery:
        order = sorted(new)
        gallery.enrol(
            [templates.identities[i] for i in order],
            torch.stack([new[i] for i in order]),
            [templates.sources[i] for i in order],
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
    directions = [normalize(features.double()) for features in (old, new)]
    means = [_shrink_mean(each) for each in directions]
    x, y = (each - mean for each, mean in zip(directions, means, strict=True))
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
    is the template, the others are probes of the new model. Each probe is also used as a stranger, by comparing it with
    everybody else only.

    Args:
        old: Features of the old model.
        new: Features of the same pictures by the new model.
        people: The number of the person on each picture.
        folds: The number of parts that the people are divided into.

    Returns:
        The rates, None if fewer than ten people have two pictures.
    """
    names, inverse, counts = people.unique(return_inverse=True, return_counts=True)
    if int((counts >= 2).sum()) < MIN_PEOPLE_TO_MEASURE:
        return None
    parts = []
    for fold in range(folds):
        is_test = inverse % folds == fold
        if is_test.all() or not is_test.any():
            return None
        learned = learn_map(old[~is_test], new[~is_test])
        rows = is_test.nonzero().flatten()
        first = torch.stack([rows[inverse[rows] == one][0] for one in inverse[rows].unique()])
        probes = rows[~torch.isin(rows, first)]
        templates = (learned(old[first]), new[first].double())
        parts.append([_score_probes(new[probes].double(), each, inverse[probes], inverse[first]) for each in templates])
    total = len(names)
    fpir = max(LOSS_FPIR, 1 / max(1, sum(len(part[0][0]) for part in parts)))
    rates = []
    for kind in range(2):  # mapped templates, templates of the new model
        own, other = (torch.cat([part[kind][i] for part in parts]) for i in range(2))
        threshold = choose_threshold(other, fpir=fpir).threshold
        rates.append(
            ((own > other).double().mean().item(), ((own > other) & (own >= threshold)).double().mean().item())
        )
    return MappingLoss(rates[0][0], rates[1][0], rates[0][1], rates[1][1], fpir, total)


class _Pairs(NamedTuple):
    """Pictures with features of both models, and the person on each."""

    old: Float[Tensor, "n d"]
    new: Float[Tensor, "n e"]
    people: Int[Tensor, "n"]
    names: Sequence[str]


def _embed_sources(model: Embedder, templates: Templates, pictures: Any) -> dict[int, Tensor]:
    """Return features of the new model by the position of the template, where a picture is found."""
    moved_pictures: dict[tuple[str, str], tuple[int, Any]] = {}
    if pictures is not None:
        source = open_source(pictures, identities=1, loose="keep")
        for i, record in enumerate(source.records):
            moved_pictures[record.label, Path(record.name).name] = (i, source)
    new: dict[int, Tensor] = {}
    moved: list[tuple[int, int]] = []
    in_place: list[int] = []
    for i, (name, path) in enumerate(zip(templates.identities, templates.sources, strict=True)):
        if (name, Path(path).name) in moved_pictures and path:
            moved.append((i, moved_pictures[name, Path(path).name][0]))
        elif path and Path(path).is_absolute() and Path(path).is_file():
            in_place.append(i)
    if moved:
        part = source.part(torch.tensor([j for _, j in moved]))
        new.update(
            _index_by_position(
                embed(model, part, on_error="skip"), [r.name for r in part.records], [i for i, _ in moved]
            )
        )
    if in_place:
        paths = [templates.sources[i] for i in in_place]
        unique = list(dict.fromkeys(paths))
        result = embed(model, open_source(unique, identities=1, loose="keep"), on_error="skip")
        rows = {encode_source_path(file): row for file, row in zip(result.files, result.features, strict=True)}
        new.update({i: rows[path] for i, path in zip(in_place, paths, strict=True) if path in rows})
    return new


def _index_by_position(result: Features, names: Sequence[str], positions: Sequence[int]) -> Mapping[int, Tensor]:
    rows = dict(zip(result.files, result.features, strict=True))
    return {i: rows[name] for name, i in zip(names, positions, strict=True) if name in rows}


def _collect_pairs(
    templates: Templates, new: Mapping[int, Tensor], old_model: Embedder | None, model: Embedder, common: Any
) -> _Pairs:
    """Return all pictures with features of both models: enrolled ones whose picture exists, and ``common``."""
    order = sorted(new)
    names = [templates.identities[i] for i in order]
    old_rows = [templates.features[order]] if order else []
    new_rows = [torch.stack([new[i] for i in order])] if order else []
    if common is not None:
        assert old_model is not None
        source = open_source(common, identities=1)
        first, second = (embed(one, source, on_error="skip") for one in (old_model, model))
        both = [name for name in first.files if name in set(second.files)]
        for rows, result in ((old_rows, first), (new_rows, second)):
            position = {name: i for i, name in enumerate(result.files)}
            rows.append(result.features[[position[name] for name in both]])
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
    calibrations = []
    for by, before in old.calibrations.items():
        try:
            calibrations.append(_calibrate_one(gallery, pairs, before))
        except ValueError as error:  # noqa: PERF203  (one rate may fail, the other not)
            notes.append(
                f"the threshold for {by}={before.rate:g} could not be chosen again: {error}; run `hypersphere gallery calibrate`"
            )
    return calibrations


def _calibrate_one(gallery: Gallery, pairs: _Pairs, before: Calibration) -> Calibration:
    if not len(pairs.new):
        raise ValueError("no pictures were read")
    stored = gallery.templates()
    numbers = {name: i for i, name in enumerate(dict.fromkeys([*stored.identities, *pairs.names]))}
    owners, people = (torch.tensor([numbers[name] for name in names]) for names in (stored.identities, pairs.names))
    best = []
    for part, numbers_of_part in zip(pairs.new.split(1024), people.split(1024), strict=True):
        cosines = normalize(part.double()) @ normalize(stored.features.double()).T
        cosines.masked_fill_(numbers_of_part[:, None] == owners, -1.0)
        best.append(cosines if before.by == "far" else cosines.amax(1))
    if before.by == "far":
        scores = torch.cat(best)
        point = choose_threshold(scores[scores > -1.0], far=before.rate)
    else:
        point = choose_threshold(torch.cat(best), fpir=before.rate, people=people)
    interval = (point.rate.low, point.rate.high)
    calibration = Calibration(
        point.threshold, before.by, before.rate, len(gallery), float(point.rate), interval, point.people
    )
    gallery._store.put({f"calibration_{calibration.by}": calibration.to_text()})
    return calibration


@contextmanager
def _temporary_gallery(target: str | Path, model: Embedder | str | None, key: Any) -> Iterator[Gallery]:
    """Yield a gallery in a temporary folder beside ``target``, so that a killed process leaves nothing at ``target``."""
    folder = Path(target).absolute().parent
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder} to write {Path(target).name} into")
    for leftover in folder.glob(f".{Path(target).name}.*.making"):  # of a killed process
        if not is_running(int(leftover.name.split(".")[-2])):
            shutil.rmtree(leftover, ignore_errors=True)
    temporary = folder / f".{Path(target).name}.{os.getpid()}.making"
    temporary.mkdir(0o700)
    try:
        with Gallery(temporary / "new.db", model, key=key) as gallery:
            yield gallery
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _verify(old: Gallery, new: Gallery) -> None:
    """Raise an ``OSError`` unless the new gallery is undamaged and has the same people and numbers of templates."""
    problems = new.check()
    if problems:
        raise OSError(f"the new gallery is damaged: {problems[0]}")
    if new.list() != old.list():
        raise OSError(
            "the new gallery does not have the same people and templates; the old one may have been changed meanwhile"
        )


def rekey(old: Gallery, target: str | Path, key: bytes | str | os.PathLike[str] | None) -> int:
    """Write a copy of a gallery with another key, or without one, and return the number of its identities.

    Stolen templates of the old gallery cannot be compared with those of the new one, because their secret rotations
    differ. The old gallery is not erased.

    Args:
        old: The gallery, opened with its key.
        target: The new file.
        key: The new key. With ``None`` the copy is not encrypted, unless the environment contains a key.

    Raises:
        ValueError: If ``target`` exists.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Gallery(f"{folder}/people.db") as old:
    ...     _ = old.enrol("ada", torch.ones(3))
    ...     rekey(old, f"{folder}/encrypted.db", bytes(32))
    1
    """
    if Path(target).exists():
        raise ValueError(f"there is a file at {target} already: a copy overwrites nothing; choose a new name")
    templates, settings = old.templates(), old._store.settings()
    with _temporary_gallery(target, old.fingerprint, key) as gallery:
        if templates.identities:
            gallery.enrol(templates.identities, templates.features, templates.sources)
        for one in old.counterexamples:
            gallery._store.reject(one.identity, one.feature[None], [one.source])
        gallery._store.put({k: v for k, v in settings.items() if k.startswith("calibration_")})
        _verify(old, gallery)
        gallery._store.backup(Path(target))
        count = len(gallery)
    old.remember_copy(target)
    return count
