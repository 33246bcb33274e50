"""The report of an embedder on a list of pairs of image files."""

import os
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..data.pair_list import PairList, read_pair_list
from ..data.sources import Source, open_source
from ..evaluation import DEFAULT_FARS, CosineScore, DifferenceReport, Score, paired_difference
from ..evaluation.figures import format_rate
from ..evaluation.scoring import score_pairs
from ._pair_report import pair_report
from .embedder import Embedder
from .evaluate_source import choose_score
from .evaluation_result import Evaluation
from .features import all_processes, embed

MIN_RESAMPLED_IDENTITIES = 5  # identities needed for a bootstrap over identities


def evaluate_pairs(
    embedder: Embedder,
    pairs: str | os.PathLike[str],
    root: str | os.PathLike[str] | None = None,
    *,
    against: Embedder | None = None,
    cohort: Any = None,
    top: int = 300,
    score: Score | None = None,
    fars: Sequence[float] = DEFAULT_FARS,
    worst: int = 20,
    resamples: int = 1000,
    seed: int = 0,
    batch: int = 64,
    workers: int = 2,
) -> Evaluation:
    r"""Verify listed pairs: LFW's ``pairs.txt``, or lines of two paths and 0 or 1.

    ``pairs`` and ``root`` are those of :func:`hypersphere.data.pair_list.read_pair_list`; the other arguments are those
    of :func:`evaluate`. If the folders of the images are identities, as in LFW, intervals are over identities.

    >>> import pathlib, tempfile
    >>> embedder = Embedder(torch.nn.Flatten(), hs.data.PicturePreprocessing(size=(2, 2), channels=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name, grey in (("a", 10), ("b", 20), ("c", 250)):
    ...         _ = pathlib.Path(folder, f"{name}.pgm").write_bytes(b"P5 2 2 255 " + bytes([grey] * 4))
    ...     _ = pathlib.Path(folder, "pairs.txt").write_text("a.pgm b.pgm 1\na.pgm c.pgm 0")
    ...     float(evaluate_pairs(embedder, f"{folder}/pairs.txt").report.verification.eer)
    0.0
    """
    listed = read_pair_list(pairs, root)
    strangers = None if cohort is None else open_source(cohort, identities=1)
    embedders = [embedder] if against is None else [embedder, against]
    compared = [_score_pairs(e, listed, strangers, score, top, batch, workers) for e in embedders]
    features, scores, unit = compared[0]
    people = _find_identities(listed)
    options: dict[str, Any] = {"fold": listed.fold, "identities": people, "fars": fars, "unit": unit}
    report = pair_report(scores, listed.same, listed.index, **options, worst=worst, seed=seed)
    differences: tuple[DifferenceReport, ...] = ()
    if against is not None:
        both = (scores, compared[1][1], listed.same)
        differences = (paired_difference(*both, identities=people, resamples=resamples, seed=seed),)
    facts = {
        "embedder": embedder.fingerprint,
        "against": None if against is None else against.fingerprint,
        "pairs": str(pairs),
        "identities": "folders" if people is not None else "unknown: pairs are treated as independent",
        "images": len(listed.source),
        "score": type(CosineScore() if score is None else score).__name__,
        "cohort": None if strangers is None else {"source": strangers.name, "images": len(strangers), "top": top},
        "seed": seed,
    }
    negatives = report.verification.roc.negatives
    resolved = report.verification.roc.resolve_fars(fars)
    notes = tuple(
        f"FAR {format_rate(far)} is not resolved by {negatives} different pairs" for far in fars if far not in resolved
    )
    names = tuple(record.name for record in listed.source.records)
    dataset, source = listed.source.dataset(embedder.preprocessing), listed.source
    return Evaluation(
        report,
        differences,
        facts,
        notes,
        names,
        source.classes,
        features,
        source.labels,
        lambda rows: dataset.batch(rows)[0],
    )


def _find_identities(listed: PairList) -> Int[Tensor, "n 2"] | None:
    """Return the two identities of each pair from the folders of the images.

    None if the folders contradict the pairs, or if there are too few identities for a bootstrap.
    """
    people = listed.source.labels[listed.index]
    known = torch.equal(people[:, 0] == people[:, 1], listed.same)
    return people if known and len(people.unique()) >= MIN_RESAMPLED_IDENTITIES else None


def _score_pairs(
    embedder: Embedder,
    listed: PairList,
    strangers: Source | None,
    score: Score | None,
    top: int,
    batch: int,
    workers: int,
) -> tuple[Float[Tensor, "images d"], Float[Tensor, "pairs"], str]:
    compared = choose_score(embedder, score, strangers, top, batch, workers)
    features = embed(embedder, listed.source, batch, workers=workers, group=all_processes()).features
    return features, score_pairs(compared, compared.rows(features), listed.index), compared.unit
