"""The open-set report of any embedder on any source, alone or against another embedder."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..data.sources import Record, Source, open_source
from ..evaluation import (
    DEFAULT_FARS,
    DEFAULT_FPIRS,
    ASNorm,
    Baseline,
    CosineScore,
    DifferenceReport,
    Measurement,
    OpenSetReport,
    RetrievalReport,
    Score,
    TableScore,
    compare_embedders,
    open_set_report,
    retrieval,
    templates,
)
from ..evaluation import rerank as rerank_features
from ..evaluation.figures import format_rate
from ..geometry import norm
from .baselines import MAX_PICTURES, first_identities, measure_baselines
from .embedder import Embedder
from .evaluation_result import Evaluation
from .features import all_processes, embed

Pool = Literal["mean", "max", "quality"]


def evaluate(
    embedder: Embedder,
    source: Any,
    *,
    against: Embedder | None = None,
    cohort: Any = None,
    top: int = 300,
    score: Score | None = None,
    per_template: int = 1,
    pool: Pool = "mean",
    fars: Sequence[float] = DEFAULT_FARS,
    fpirs: Sequence[float] = DEFAULT_FPIRS,
    split: str | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    quality: bool = False,
    rerank: bool = False,
    prefixes: Sequence[int] = (),
    baselines: bool = True,
    worst: int = 20,
    resamples: int = 1000,
    seed: int = 0,
    batch: int = 64,
    workers: int = 2,
) -> Evaluation:
    """Measure an embedder on pictures of identities that it was not trained on.

    Verification, identification, retrieval, strangers before a gallery, and the thresholds that give each rate: see
    :func:`hypersphere.evaluation.open_set_report`. A table's ``is_query`` and ``is_gallery`` say what is searched with
    and in, and its ``category`` gives error rates of each category side by side.

    Args:
        embedder: What is measured; :func:`load` gives one.
        source: Anything that :func:`hypersphere.data.open_source` takes.
        against: Another embedder, compared on the same pairs with an interval of the difference.
        cohort: Another source, of strangers, against whose pictures scores are normalized (AS-norm).
        top: How many of a feature's highest scores in the cohort count.
        score: What is compared, the cosine by default.
        per_template: This many images of an identity, in the order of the source, are combined into one template; a
            rest of fewer is a template of its own. 1 compares images.
        pool: How images become a template: by the mean, the maximum or the mean weighted by length.
        fars: False accept rates to report and to recommend thresholds for.
        fpirs: False positive identification rates, likewise.
        split: Only the records of this split.
        on_error: ``"skip"`` leaves out pictures that cannot be read, with a warning.
        quality: Measure false rejects as the worst images are discarded. The quality of an image is the length of its
            feature; for faces, also the detector's score, size, sharpness, pose and illumination, each by itself.
        rerank: Also measure retrieval after re-ranking by k-reciprocal neighbors (:func:`hypersphere.evaluation.rerank`).
        prefixes: Also measure prefixes of the features with these numbers of dimensions, for embedders whose prefixes were
            trained (:class:`hypersphere.objectives.Matryoshka`).
        baselines: Measure simple methods (pixels, LBP, HOG) and the pretrained networks that are on this computer beside
            it, if images are compared and not templates.
        worst: How many of the most confident errors of each kind are listed.
        resamples: Of the paired interval.
        seed: Of everything drawn at random.
        batch: Images embedded at a time.
        workers: Threads that decode ahead.

    Raises:
        ValueError: With one sentence about what is wrong with the source or an option.

    >>> embedder = Embedder(torch.nn.Flatten(), hs.data.PicturePreprocessing(size=(8, 8), channels=1))
    >>> people = torch.randint(0, 256, (10, 8, 8), dtype=torch.uint8).repeat(3, 1, 1)  # three pictures of each of ten
    >>> result = evaluate(embedder, (people.numpy(), torch.arange(10).repeat(3).numpy()), fars=[1e-2], fpirs=[1e-1])
    >>> float(result.report.eer), float(result.report.rank(1))
    (0.0, 1.0)
    """
    _check_templates(per_template, quality, score)
    if any(size < 1 for size in prefixes):
        raise ValueError(f"prefixes must be numbers of dimensions ≥ 1, got {list(prefixes)}")
    pictures = _select_searched(open_source(source, split=split, on_error=on_error))
    strange = None if cohort is None else open_source(cohort, on_error=on_error, identities=1)
    every = [embedder] if against is None else [embedder, against]
    first, *others = [_side(e, pictures, strange, score, top, per_template, pool, batch, workers) for e in every]
    rows = "images" if per_template == 1 else "templates"
    report = _report(first, quality, fars=fars, fpirs=fpirs, worst=worst, seed=seed, rows=rows)
    facts = {
        **{"embedder": embedder.fingerprint, "against": None if against is None else against.fingerprint},
        **{"source": pictures.name, "split": split, "seed": seed, "images": len(pictures)},
        "cohort": None if strange is None else {"source": strange.name, "images": len(strange), "top": top},
        **{"images per template": per_template, "pool": pool if per_template > 1 else None},
        **_said_of(first),
    }
    compared = tuple(gap for other in others for gap in _compare_sides(first, other, fars, resamples, seed))
    notes = tuple(_list_unresolved(report, fars, fpirs))
    names, dataset = tuple(record.name for record in first.records), pictures.dataset(embedder.preprocessing)
    stored = lambda rows: dataset.batch(first.place[rows])[0]  # noqa: E731
    shown = lambda rows: embedder.preprocessing.thumbnails(stored(rows))  # noqa: E731
    simple = _baselines(first, pictures, shown, embedder.fingerprint, seed) if baselines and per_template == 1 else ()
    curves = _measure_rejection(report, first, fars) if quality else {}
    reranked = _measure_reranked(first) if rerank else None
    shorter = {size: _measure_prefix(first, size, fars=fars, fpirs=fpirs, seed=seed) for size in prefixes}
    return Evaluation(
        *(report, compared, facts, notes, names, pictures.classes, first.features, first.labels, shown, simple, curves),
        reranked,
        shorter,
    )


class _Side(NamedTuple):
    features: Float[Tensor, "n d"]
    labels: Int[Tensor, "n"]
    place: Int[Tensor, "n"]
    records: tuple[Record, ...]
    score: Score
    info: Sequence[Mapping[str, Any]] = ()


# Figures of a face, turned so that higher is better.
FACE_FIGURES: dict[str, Callable[[Mapping[str, Any]], float]] = {
    "detector score": lambda info: info["score"],
    "size": lambda info: info["quality"]["size"],
    "sharpness": lambda info: info["quality"]["sharpness"],
    "frontal pose": lambda info: -abs(info["quality"]["yaw"]),
    "illumination": lambda info: -abs(info["quality"]["brightness"] - 0.5),
}


def _measure_reranked(side: _Side) -> RetrievalReport:
    """Return retrieval by re-ranked similarities, with the queries and the gallery of the report."""
    queries, gallery = _flags(side.records)
    every = torch.arange(len(side.labels))
    if queries is None or gallery is None:
        values, asked, searched = rerank_features(side.features), every, every
    else:
        asked, searched = every[queries], every[gallery]
        values = rerank_features(side.features[asked], side.features[searched])
    place = torch.full((len(every),), -1)
    place[searched] = torch.arange(len(searched))
    labels = side.labels
    found = retrieval(
        torch.arange(len(asked))[:, None].double(),
        labels[asked],
        torch.arange(len(searched))[:, None].double(),
        labels[searched],
        own=place[asked],
        score=TableScore(values),
    )
    counts = torch.bincount(labels[searched], minlength=int(labels.max()) + 1)
    mated = counts[labels[asked]] - (place[asked] >= 0).long() > 0
    return replace(found, owners=labels[asked][mated])


def _measure_prefix(side: _Side, size: int, **options: Any) -> OpenSetReport:
    """Return the report on the first dimensions of the features, by cosine."""
    dim = side.features.shape[1]
    if size > dim:
        raise ValueError(f"prefixes must be at most the dimension of the features, {dim}, got {size}")
    return _report(side._replace(features=side.features[:, :size], score=CosineScore()), False, worst=1, **options)


def _measure_rejection(
    report: OpenSetReport, side: _Side, fars: Sequence[float]
) -> dict[str, list[tuple[float, Measurement]]]:
    """Return false reject rates over the share of discarded pairs, by the name of each quality figure."""
    resolved = report.pairs.roc.resolve_fars(fars)
    if not resolved:
        return {}
    figures = {"feature length": norm(side.features)}
    if side.info and all("quality" in info for info in side.info):
        figures |= {name: torch.tensor([get(info) for info in side.info]) for name, get in FACE_FIGURES.items()}
    found = {name: replace(report, quality=values.double()) for name, values in figures.items()}
    return {name: judged.rejection(resolved[-1]) for name, judged in found.items()}


def _check_templates(per_template: int, quality: bool, score: Score | None) -> None:
    if per_template < 1:
        raise ValueError(f"per_template must be an integer ≥ 1, got {per_template!r}")
    if per_template > 1 and (quality or not isinstance(score, CosineScore | None)):
        raise ValueError("templates have length 1, so quality and scores that use lengths need per_template=1")


def _report(side: _Side, quality: bool, **options: Any) -> OpenSetReport:
    """Return the report on one embedder's features, by the roles and categories of their records."""
    queries, gallery = _flags(side.records)
    return open_set_report(
        side.features,
        side.labels,
        categories=_categories(side.records),
        quality=norm(side.features) if quality else None,
        queries=queries,
        gallery=gallery,
        score=side.score,
        **options,
    )


def _said_of(side: _Side) -> dict[str, Any]:
    """Return the facts of a report about how features were compared."""
    roles = zip(("queries", "gallery"), _flags(side.records), strict=True)
    counts = {name: None if flags is None else int(flags.sum()) for name, flags in roles}
    return {"score": type(side.score).__name__, **counts}


def _side(
    embedder: Embedder,
    pictures: Source,
    strange: Source | None,
    score: Score | None,
    top: int,
    per_template: int,
    pool: Pool,
    batch: int,
    workers: int,
) -> _Side:
    """Return one embedder's features of the images or templates, and how they are compared."""
    found = embed(embedder, pictures, batch, workers=workers, group=all_processes())
    features = found.features
    if len(features) != len(pictures):
        raise ValueError(
            f"an evaluation needs one feature per picture, got {len(features)} for {len(pictures)}: the preprocessing of "
            "the embedder must choose one face"
        )
    compared = CosineScore() if score is None else score
    if strange is not None:
        compared = ASNorm(
            embed(embedder, strange, batch, workers=workers, group=all_processes()).features, top, compared
        )
    if per_template == 1:
        rows = torch.arange(len(pictures))
        return _Side(features, pictures.labels, rows, pictures.records, compared, found.info)
    owner, kept = _groups(pictures, per_template)
    return _Side(
        templates(features, owner, pool).features,
        pictures.labels[kept],
        kept,
        tuple(pictures.records[i] for i in kept.tolist()),
        compared,
    )


def _groups(pictures: Source, size: int) -> tuple[Int[Tensor, "n"], Int[Tensor, "t"]]:
    """Return the template of each image and the first image of each: of one label, category and role, in the source's order."""
    seen: dict[tuple[Any, ...], int] = {}
    number: dict[tuple[Any, ...], int] = {}
    owner, kept = [], []
    for i, record in enumerate(pictures.records):
        key = (record.label, record.category, record.is_query, record.is_gallery)
        count = seen.get(key, 0)
        seen[key] = count + 1
        group = (*key, count // size)
        if group not in number:
            number[group] = len(number)
            kept.append(i)
        owner.append(number[group])
    return torch.tensor(owner), torch.tensor(kept)


def _select_searched(pictures: Source) -> Source:
    """Return the records that are a query or in the gallery, where the source says which are."""
    roles = [record.is_query is not None or record.is_gallery is not None for record in pictures.records]
    if not any(roles):
        return pictures
    kept = [i for i, record in enumerate(pictures.records) if record.is_query or record.is_gallery]
    for name, column in (("query", "is_query"), ("gallery image", "is_gallery")):
        if not any(getattr(pictures.records[i], column) for i in kept):
            raise ValueError(
                f"{pictures.name} says who is searched but names no {name}: {column} must be true somewhere"
            )
    return pictures.part(torch.tensor(kept))


def _flags(records: Sequence[Record]) -> tuple[Bool[Tensor, "n"] | None, Bool[Tensor, "n"] | None]:
    if not any(record.is_query is not None or record.is_gallery is not None for record in records):
        return None, None
    return torch.tensor([bool(r.is_query) for r in records]), torch.tensor([bool(r.is_gallery) for r in records])


def _categories(records: Sequence[Record]) -> list[str] | None:
    if all(record.category is None for record in records):
        return None
    return ["no category" if record.category is None else record.category for record in records]


def _compare_sides(
    first: _Side, second: _Side, fars: Sequence[float], resamples: int, seed: int
) -> tuple[DifferenceReport, ...]:
    """Compare EER, and TAR at the lowest rate that the drawn pairs resolve."""
    features, scores = (first.features, second.features), (first.score, second.score)
    options: dict[str, Any] = {"resamples": resamples, "seed": seed, "scores": scores}
    reports = [compare_embedders(*features, first.labels, **options)]
    sizes = first.labels.unique(return_counts=True)[1]
    different = (len(first.labels) ** 2 - int(sizes.square().sum())) // 2
    resolved = [far for far in fars if far * min(different, 100_000) >= 10]
    if resolved:
        reports.append(compare_embedders(*features, first.labels, measure="tar", far=min(resolved), **options))
    return tuple(reports)


def _baselines(side: _Side, pictures: Source, stored: Any, fingerprint: str, seed: int) -> tuple[Baseline, ...]:
    """Measure simple methods on the same pictures, or on some identities of many. Nothing here is trained, so PCA and LDA are not."""
    rows = first_identities(side.labels, MAX_PICTURES)
    part = pictures.part(rows)
    return measure_baselines(side.features[rows], part, stored(rows), without=fingerprint, score=side.score, seed=seed)


def _list_unresolved(report: Any, fars: Sequence[float], fpirs: Sequence[float]) -> list[str]:
    """Return a sentence for each rate that the data does not resolve."""
    negatives = report.pairs.roc.negatives
    notes = [
        f"FAR {format_rate(far)} is not resolved by {negatives} different pairs"
        for far in fars
        if far not in report.pairs.roc.resolve_fars([far])
    ]
    if report.detection is None:
        return [*notes, "no rate of strangers: too few identities have several images"]
    strangers = int((~report.detection.ranking.mated).sum())
    unresolved = [fpir for fpir in fpirs if fpir * strangers < 1 - 1e-9]
    return [*notes, *(f"FPIR {format_rate(fpir)} is not resolved by {strangers} strangers" for fpir in unresolved)]
