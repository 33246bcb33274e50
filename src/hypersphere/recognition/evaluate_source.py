"""The open-set report of an embedder on a source, alone or in comparison with another embedder."""

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

    The report covers verification, identification, retrieval, the rejection of strangers, and thresholds; see
    :func:`hypersphere.evaluation.open_set_report`. The columns ``is_query`` and ``is_gallery`` of a table select the
    queries and the gallery. With a column ``category``, error rates are also reported per category.

    Args:
        embedder: The embedder to measure, such as from :func:`load`.
        source: Anything that :func:`hypersphere.data.open_source` takes.
        against: Another embedder, which is compared on the same pairs, with an interval of the difference.
        cohort: A source of other people, with whose pictures scores are normalized (AS-norm).
        top: The number of highest scores in the cohort that are used for each feature.
        score: The score function, by default the cosine.
        per_template: The number of images per template, in the order of the source. Remaining images form a smaller
            template. 1 compares images.
        pool: How images are combined to a template: by mean, maximum, or mean weighted by length (``"quality"``).
        fars: False accept rates to report and to recommend thresholds for.
        fpirs: False positive identification rates to report and to recommend thresholds for.
        split: Use only this split.
        on_error: ``"skip"`` skips pictures that cannot be read, with a warning.
        quality: Also measure the false rejects that remain when the images of lowest quality are discarded. Quality is the
            length of the feature and, for faces, also detector score, size, sharpness, pose and illumination, each
            separately.
        rerank: Also measure retrieval after re-ranking by k-reciprocal neighbors (:func:`hypersphere.evaluation.rerank`).
        prefixes: Also measure the features shortened to these numbers of dimensions, for embedders trained with
            :class:`hypersphere.objectives.Matryoshka`.
        baselines: Also measure simple methods (pixels, LBP, HOG) and downloaded pretrained networks. Not with templates.
        worst: The number of most confident errors of each kind to list.
        resamples: The number of bootstrap resamples for the interval of the difference.
        seed: The random seed.
        batch: The batch size.
        workers: Threads that read and decode ahead of the network.

    Raises:
        ValueError: If the source or an option is invalid.

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
    strangers = None if cohort is None else open_source(cohort, on_error=on_error, identities=1)
    embedders = [embedder] if against is None else [embedder, against]
    first, *others = [
        _embed_source(e, pictures, strangers, score, top, per_template, pool, batch, workers) for e in embedders
    ]
    rows = "templates" if per_template > 1 else embedder.preprocessing.plural
    report = _make_report(first, quality, fars=fars, fpirs=fpirs, worst=worst, seed=seed, rows=rows)
    facts = {
        **{"embedder": embedder.fingerprint, "against": None if against is None else against.fingerprint},
        **{"source": pictures.name, "split": split, "seed": seed, "images": len(pictures)},
        "cohort": None if strangers is None else {"source": strangers.name, "images": len(strangers), "top": top},
        **{"images per template": per_template, "pool": pool if per_template > 1 else None},
        **_describe_comparison(first),
    }
    compared = tuple(gap for other in others for gap in _compare_with(first, other, fars, resamples, seed))
    notes = tuple(_list_unresolved(report, fars, fpirs))
    names, dataset = tuple(record.name for record in first.records), pictures.dataset(embedder.preprocessing)
    draw_thumbnails = lambda rows: embedder.preprocessing.thumbnails(dataset.batch(first.positions[rows])[0])  # noqa: E731
    simple = (
        _measure_baselines(first, pictures, draw_thumbnails, embedder.fingerprint, seed)
        if baselines and per_template == 1
        else ()
    )
    curves = _measure_rejection(report, first, fars) if quality else {}
    reranked = _measure_reranked(first) if rerank else None
    shorter = {size: _measure_prefix(first, size, fars=fars, fpirs=fpirs, seed=seed) for size in prefixes}
    return Evaluation(
        *(
            report,
            compared,
            facts,
            notes,
            names,
            pictures.classes,
            first.features,
            first.labels,
            draw_thumbnails,
            simple,
            curves,
        ),
        reranked,
        shorter,
    )


class _Embedded(NamedTuple):
    """The features of one embedder, per image or template: labels, positions in the source, records and score."""

    features: Float[Tensor, "n d"]
    labels: Int[Tensor, "n"]
    positions: Int[Tensor, "n"]
    records: tuple[Record, ...]
    score: Score
    info: Sequence[Mapping[str, Any]] = ()


# Quality figures of a face; higher is better.
FACE_FIGURES: dict[str, Callable[[Mapping[str, Any]], float]] = {
    "detector score": lambda info: info["score"],
    "size": lambda info: info["quality"]["size"],
    "sharpness": lambda info: info["quality"]["sharpness"],
    "frontal pose": lambda info: -abs(info["quality"]["yaw"]),
    "illumination": lambda info: -abs(info["quality"]["brightness"] - 0.5),
}


def _measure_reranked(embedded: _Embedded) -> RetrievalReport:
    """Return retrieval by re-ranked similarities, with the queries and the gallery of the report."""
    queries, gallery = _read_roles(embedded.records)
    every = torch.arange(len(embedded.labels))
    if queries is None or gallery is None:
        values, query_rows, gallery_rows = rerank_features(embedded.features), every, every
    else:
        query_rows, gallery_rows = every[queries], every[gallery]
        values = rerank_features(embedded.features[query_rows], embedded.features[gallery_rows])
    column = torch.full((len(every),), -1)
    column[gallery_rows] = torch.arange(len(gallery_rows))
    labels = embedded.labels
    found = retrieval(
        torch.arange(len(query_rows))[:, None].double(),
        labels[query_rows],
        torch.arange(len(gallery_rows))[:, None].double(),
        labels[gallery_rows],
        own=column[query_rows],
        score=TableScore(values),
    )
    counts = torch.bincount(labels[gallery_rows], minlength=int(labels.max()) + 1)
    mated = counts[labels[query_rows]] - (column[query_rows] >= 0).long() > 0
    return replace(found, owners=labels[query_rows][mated])


def _measure_prefix(embedded: _Embedded, size: int, **options: Any) -> OpenSetReport:
    """Return the report on the first dimensions of the features, by cosine."""
    dim = embedded.features.shape[1]
    if size > dim:
        raise ValueError(f"prefixes must be at most the dimension of the features, {dim}, got {size}")
    return _make_report(
        embedded._replace(features=embedded.features[:, :size], score=CosineScore()), False, worst=1, **options
    )


def _measure_rejection(
    report: OpenSetReport, embedded: _Embedded, fars: Sequence[float]
) -> dict[str, list[tuple[float, Measurement]]]:
    """Return false reject rates over the share of discarded pairs, by the name of each quality figure."""
    resolved = report.pairs.roc.resolve_fars(fars)
    if not resolved:
        return {}
    figures = {"feature length": norm(embedded.features)}
    if embedded.info and all("quality" in info for info in embedded.info):
        figures |= {name: torch.tensor([get(info) for info in embedded.info]) for name, get in FACE_FIGURES.items()}
    found = {name: replace(report, quality=values.double()) for name, values in figures.items()}
    return {name: judged.rejection(resolved[-1]) for name, judged in found.items()}


def _check_templates(per_template: int, quality: bool, score: Score | None) -> None:
    if per_template < 1:
        raise ValueError(f"per_template must be an integer ≥ 1, got {per_template!r}")
    if per_template > 1 and (quality or not isinstance(score, CosineScore | None)):
        raise ValueError("templates have length 1, so quality and scores that use lengths need per_template=1")


def _make_report(embedded: _Embedded, quality: bool, **options: Any) -> OpenSetReport:
    """Return the report on one embedder's features, by the roles and categories of their records."""
    queries, gallery = _read_roles(embedded.records)
    return open_set_report(
        embedded.features,
        embedded.labels,
        categories=_read_categories(embedded.records),
        quality=norm(embedded.features) if quality else None,
        queries=queries,
        gallery=gallery,
        score=embedded.score,
        **options,
    )


def _describe_comparison(embedded: _Embedded) -> dict[str, Any]:
    """Return the facts about the comparison of features."""
    roles = zip(("queries", "gallery"), _read_roles(embedded.records), strict=True)
    counts = {name: None if flags is None else int(flags.sum()) for name, flags in roles}
    return {"score": type(embedded.score).__name__, **counts}


def _embed_source(
    embedder: Embedder,
    pictures: Source,
    strangers: Source | None,
    score: Score | None,
    top: int,
    per_template: int,
    pool: Pool,
    batch: int,
    workers: int,
) -> _Embedded:
    """Return the features of the images or templates by one embedder, with their score function."""
    found = embed(embedder, pictures, batch, workers=workers, group=all_processes())
    features = found.features
    if len(features) != len(pictures):
        raise ValueError(
            f"an evaluation needs one feature per picture, got {len(features)} for {len(pictures)}: the preprocessing of "
            "the embedder must choose one face"
        )
    compared = choose_score(embedder, score, strangers, top, batch, workers)
    if per_template == 1:
        rows = torch.arange(len(pictures))
        return _Embedded(features, pictures.labels, rows, pictures.records, compared, found.info)
    owner, first_images = _assign_templates(pictures, per_template)
    return _Embedded(
        templates(features, owner, pool).features,
        pictures.labels[first_images],
        first_images,
        tuple(pictures.records[i] for i in first_images.tolist()),
        compared,
    )


def choose_score(
    embedder: Embedder, score: Score | None, strangers: Source | None, top: int, batch: int, workers: int
) -> Score:
    """Return the score, by default the cosine, normalized by the features of strangers if there are any (AS-norm)."""
    chosen = CosineScore() if score is None else score
    if strangers is None:
        return chosen
    return ASNorm(embed(embedder, strangers, batch, workers=workers, group=all_processes()).features, top, chosen)


def _assign_templates(pictures: Source, size: int) -> tuple[Int[Tensor, "n"], Int[Tensor, "t"]]:
    """Return the template of each image, and the first image of each template. A template has one label, category and role."""
    seen: dict[tuple[Any, ...], int] = {}
    number: dict[tuple[Any, ...], int] = {}
    owner, first_images = [], []
    for i, record in enumerate(pictures.records):
        key = (record.label, record.category, record.is_query, record.is_gallery)
        count = seen.get(key, 0)
        seen[key] = count + 1
        group = (*key, count // size)
        if group not in number:
            number[group] = len(number)
            first_images.append(i)
        owner.append(number[group])
    return torch.tensor(owner), torch.tensor(first_images)


def _select_searched(pictures: Source) -> Source:
    """Return the records that are queries or in the gallery; all records if the source has no such roles."""
    roles = [record.is_query is not None or record.is_gallery is not None for record in pictures.records]
    if not any(roles):
        return pictures
    kept = [i for i, record in enumerate(pictures.records) if record.is_query or record.is_gallery]
    for name, column in (("query", "is_query"), ("gallery image", "is_gallery")):
        if not any(getattr(pictures.records[i], column) for i in kept):
            raise ValueError(
                f"{pictures.name} has a column for queries or the gallery, but no {name}: {column} must be true somewhere"
            )
    return pictures.part(torch.tensor(kept))


def _read_roles(records: Sequence[Record]) -> tuple[Bool[Tensor, "n"] | None, Bool[Tensor, "n"] | None]:
    if not any(record.is_query is not None or record.is_gallery is not None for record in records):
        return None, None
    return torch.tensor([bool(r.is_query) for r in records]), torch.tensor([bool(r.is_gallery) for r in records])


def _read_categories(records: Sequence[Record]) -> list[str] | None:
    if all(record.category is None for record in records):
        return None
    return ["no category" if record.category is None else record.category for record in records]


def _compare_with(
    first: _Embedded, second: _Embedded, fars: Sequence[float], resamples: int, seed: int
) -> tuple[DifferenceReport, ...]:
    """Compare the EER, and the TAR at the lowest FAR that the drawn pairs resolve."""
    features, scores = (first.features, second.features), (first.score, second.score)
    options: dict[str, Any] = {"resamples": resamples, "seed": seed, "scores": scores}
    reports = [compare_embedders(*features, first.labels, **options)]
    sizes = first.labels.unique(return_counts=True)[1]
    different = (len(first.labels) ** 2 - int(sizes.square().sum())) // 2
    resolved = [far for far in fars if far * min(different, 100_000) >= 10]
    if resolved:
        reports.append(compare_embedders(*features, first.labels, measure="tar", far=min(resolved), **options))
    return tuple(reports)


def _measure_baselines(
    embedded: _Embedded, pictures: Source, draw_pictures: Any, fingerprint: str, seed: int
) -> tuple[Baseline, ...]:
    """Measure untrained simple methods on the same pictures, or on a part if there are many identities."""
    rows = first_identities(embedded.labels, MAX_PICTURES)
    part = pictures.part(rows)
    return measure_baselines(
        embedded.features[rows], part, draw_pictures(rows), without=fingerprint, score=embedded.score, seed=seed
    )


def _list_unresolved(report: Any, fars: Sequence[float], fpirs: Sequence[float]) -> list[str]:
    """Return a sentence for each rate that the data does not resolve."""
    negatives = report.pairs.roc.negatives
    notes = [
        f"FAR {format_rate(far)} is not resolved by {negatives} different pairs"
        for far in fars
        if far not in report.pairs.roc.resolve_fars([far])
    ]
    if report.detection is None:
        return [*notes, "no rate for strangers, because too few identities have several images"]
    strangers = int((~report.detection.ranking.mated).sum())
    unresolved = [fpir for fpir in fpirs if fpir * strangers < 1 - 1e-9]
    return [*notes, *(f"FPIR {format_rate(fpir)} is not resolved by {strangers} strangers" for fpir in unresolved)]
