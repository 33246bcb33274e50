"""The parts of an open-set report: search of a set by its own images, strangers, probabilities."""

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..data.splits import identity_split
from ..data.streams import TEMPLATE, Stream
from ..data.verification_pairs import pairs
from ._identification import IdentificationReport
from ._retrieval import RetrievalReport, retrieval
from .detection import DetectionReport
from .query_gallery import QueryGallery
from .ranking import Ranking, ranking
from .score_calibration import ScoreCalibration, ScoreReport, calibrate_scores
from .scoring import Score, score_pairs
from .unseen import one_each

CALIBRATION_PAIRS = 50_000


def rank_images(
    features: Float[Tensor, "n d"], labels: Int[Tensor, "n"], sides: QueryGallery, score: Score, chunk: int
) -> Ranking:
    """Rank the gallery for every query, itself left out; an image that is no query has rank 0, like one without a mate."""
    q, g = sides
    found = ranking(features[q], labels[q], features[g], labels[g], chunk, own=_places(sides), score=score)
    n = len(labels)
    low = found.best.new_full((n,), -torch.inf)
    whole = Ranking(low, low.clone(), torch.zeros_like(labels), torch.zeros_like(labels), labels.clone())
    for column, part in zip(whole, found, strict=True):
        column[q] = part
    return whole


def summarize_ranks(ranked: Ranking, labels: Int[Tensor, "n"], sides: QueryGallery) -> IdentificationReport:
    """Summarize the ranks of the queries that have a mate in the gallery."""
    mated = ranked.mated
    identities = int(labels[sides.gallery].unique().numel())
    images = int(sides.gallery.sum()) - int((sides.gallery & sides.queries).any())
    return IdentificationReport(ranked.rank[mated], identities, ranked.image_rank[mated], max(images, 1), labels[mated])


def measure_retrieval(
    features: Float[Tensor, "n d"],
    labels: Int[Tensor, "n"],
    sides: QueryGallery,
    score: Score,
    chunk: int,
    ranked: Ranking,
) -> RetrievalReport:
    """Measure retrieval; ``ranked`` marks the queries that have a mate in the gallery."""
    q, g = sides
    found = retrieval(features[q], labels[q], features[g], labels[g], own=_places(sides), score=score, chunk=chunk)
    return replace(found, owners=labels[ranked.mated])


def strangers(
    features: Float[Tensor, "n d"], labels: Int[Tensor, "n"], sides: QueryGallery, score: Score, seed: int, chunk: int
) -> DetectionReport | None:
    """Search with people, some of them not enrolled. Return None if the data is too small.

    Where queries of identities that the gallery lacks exist, they are the strangers before the whole gallery. Otherwise
    half of the identities that can be are enrolled: by one image each where every image is query and gallery at
    once, by all their gallery images where the two are apart.
    """
    q, g = sides
    apart = not bool((q & g).any())
    enrolled = labels[g].unique()
    if apart and not torch.isin(labels[q], enrolled).all():
        gallery, probe = g, q
    else:
        several = _several(labels, sides, apart)
        if len(several) < 2:
            return None
        stream = Stream(seed, TEMPLATE)
        enrolled = several[stream.permutation(len(several))[: len(several) // 2].to(labels.device)]
        gallery = g & torch.isin(labels, enrolled)
        probe = q.clone()
        if not apart:
            template, _ = one_each(labels, stream)
            chosen = torch.zeros_like(g)
            chosen[template] = True
            gallery &= chosen
            probe &= ~gallery
    if not gallery.any() or not probe.any():
        return None
    found = ranking(features[probe], labels[probe], features[gallery], labels[gallery], chunk, score=score)
    if found.mated.all() or not found.mated.any():
        return None
    return DetectionReport(found, score.unit, labels[probe])


def calibrate_on_halves(
    features: Float[Tensor, "n d"], labels: Int[Tensor, "n"], score: Score, seed: int
) -> tuple[ScoreCalibration, ScoreReport] | None:
    """Fit probabilities on pairs of one half of the identities and evaluate them on the other half."""
    halves = []
    for members in identity_split(labels.cpu(), [0.5, 0.5], seed):
        mine = labels.cpu()[members]
        sizes = mine.unique(return_counts=True)[1]
        same = int((sizes * (sizes - 1) // 2).sum())
        different = len(mine) * (len(mine) - 1) // 2 - same
        if not same or not different:
            return None
        drawn = pairs(mine, min(same, CALIBRATION_PAIRS), min(different, CALIBRATION_PAIRS), seed=seed)
        rows = score.rows(features[members.to(features.device)])
        scores = score_pairs(score, rows, torch.stack([drawn.first, drawn.second], 1))
        halves.append((scores, drawn.same.to(features.device)))
    fitted = calibrate_scores(*halves[0])
    return fitted, fitted.evaluate(*halves[1])


def _places(sides: QueryGallery) -> Int[Tensor, "q"]:
    """Return the index of each query in the gallery, −1 if it is not part of it."""
    place = sides.gallery.long().cumsum(0) - 1
    return place.masked_fill(~sides.gallery, -1)[sides.queries]


def _several(labels: Int[Tensor, "n"], sides: QueryGallery, apart: bool) -> Int[Tensor, "k"]:
    """Return the identities with at least one image to enroll and another one to search with."""
    stored, stored_count = labels[sides.gallery].unique(return_counts=True)
    if apart:
        return stored[torch.isin(stored, labels[sides.queries])]
    return stored[stored_count > 1]
