"""A report on the recognition of identities that are not in the training set."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from .. import plots
from ..data.streams import TEMPLATE, Stream, identity_split
from ..data.verification_pairs import count_pairs, pairs
from ._all_pairs import BINS, AllPairs, PairErrors, all_pairs
from ._identification import IdentificationReport, split_one_per_class
from ._retrieval import RetrievalReport, retrieval
from ._verification import HIGHEST_PAIRS, PairIntervals, rate_figures, resample_pairs
from .categories import CategoryRates, category_rates, check_categories
from .detection import DetectionReport
from .figures import Figure, Report, format_rate
from .intervals import RESAMPLES, Measurement, clustered_mean, wilson
from .ranking import QueryGallery, Ranking, check_ids, make_masks, rank_probes
from .score_calibration import ScoreCalibration, ScoreReport, calibrate_scores
from .scoring import CosineScore, Score, score_pairs
from .thresholds import DEFAULT_FARS, DEFAULT_FPIRS

REJECTED_SHARES = (0.0, 0.05, 0.1, 0.2, 0.3)  # shares of the pairs that are rejected for low quality
MAX_CALIBRATION_PAIRS = 50_000  # of one identity, and of two; more pairs hardly change the fit


def open_set_report(
    features: Float[Tensor, "n d"],
    labels: Shaped[Tensor, "..."],
    *,
    fars: Sequence[float] = DEFAULT_FARS,
    fpirs: Sequence[float] = DEFAULT_FPIRS,
    categories: Sequence[str] | Int[Tensor, "n"] | None = None,
    quality: Float[Tensor, "n"] | None = None,
    queries: Bool[Tensor, "n"] | None = None,
    gallery: Bool[Tensor, "n"] | None = None,
    score: Score | None = None,
    worst: int = 20,
    resamples: int = RESAMPLES,
    seed: int = 0,
    chunk: int = 512,
    rows: str = "images",
) -> "OpenSetReport":
    """Evaluate features ``(n, d)`` of identities that are not in the training set, exactly and in chunks.

    - Verification compares all pairs of images (:func:`all_pairs`): EER, TAR at ``fars``, and their thresholds.
    - Identification searches for each image among all other images: rank-k rates and, as retrieval, mAP and MAP@R
      (:func:`retrieval`).
    - Open-set identification draws half of the identities with several images and enrolls one random image of each. Their
      other images are mated probes, and the images of all other identities are strangers: TPIR at ``fpirs``, and thresholds.
      If some ``queries`` have identities that are not in the gallery, these queries are the strangers instead, and the whole
      gallery is enrolled.
    - Calibration fits probabilities on pairs of a random half of the identities and evaluates them on the other half.

    Intervals of rates are over identities: identities are drawn with replacement, and the weight of a pair or probe is the
    number of times that its identities were drawn (:class:`~hypersphere.evaluation._verification.PairIntervals`). The gallery
    of a search does not change.

    Args:
        features: Features of images.
        labels: Identity of each image, integers.
        fars: False accept rates of pairs. Rates that the number of pairs does not resolve are left out.
        fpirs: False positive identification rates of strangers. Rates that the number of strangers does not resolve are left
            out.
        categories: Category of each image, such as a site, a camera or an age group. Error rates of a category are measured
            at the common thresholds, over pairs within the category.
        quality: Quality of each image, higher is better. The report then contains false reject rates after the rejection of
            pairs with low quality.
        queries: Mask of the images to search with. If ``queries`` and ``gallery`` are given, only pairs of a query and a
            gallery image are compared.
        gallery: Mask of the images to search in.
        score: Score to compare features with, such as :class:`ASNorm`; the cosine by default.
        worst: Number of the most confident errors of each kind to keep.
        resamples: Number of resamples for the intervals of EER, AUC, TAR and categories.
        seed: Seed of the random halves, templates and resamples.
        chunk: Number of images compared at a time; affects memory only.
        rows: Name of the rows of ``features`` in the report, such as "templates".

    >>> labels = torch.arange(30).repeat(6)
    >>> report = open_set_report(torch.eye(30)[labels] + 0.05 * torch.randn(180, 30), labels)
    >>> report.rank(1), report.tar(1e-3)
    (1.0000 [0.9791, 1.0000], 1.0000 [0.9915, 1.0000])
    >>> report.eer.over
    'identities'
    """
    labels = check_ids("label", labels, features)
    names = None if categories is None else check_categories(categories, len(labels))
    if quality is not None and (quality.shape != labels.shape or not quality.isfinite().all()):
        raise ValueError(
            f"quality must be a finite number for each of {len(labels)} images, got {tuple(quality.shape)}"
        )
    for name, values in (("fars", fars), ("fpirs", fpirs)):
        if not all(0 < value <= 1 for value in values):
            raise ValueError(f"{name} must be rates in (0, 1], got {tuple(values)}")
    masks = make_masks(queries, gallery, labels)
    score = CosineScore() if score is None else score
    counted = all_pairs(
        features,
        labels,
        worst=worst,
        highest=HIGHEST_PAIRS,
        far=max(fars, default=1e-2),
        chunk=chunk,
        score=score,
        masks=masks,
    )
    ranked = rank_images(features, labels, masks, score, chunk)
    thresholds = {far: counted.threshold(far) for far in counted.roc.resolve_fars(fars)}
    fitted = calibrate_on_halves(features, labels, score, seed)
    return OpenSetReport(
        counted,
        ranked,
        labels,
        summarize_ranks(ranked, labels, masks),
        measure_retrieval(features, labels, masks, score, chunk, ranked),
        measure_detection(features, labels, masks, score, seed, chunk),
        None if fitted is None else fitted[0],
        None if fitted is None else fitted[1],
        category_rates(
            features, labels, names, ranked, thresholds, chunk, score=score, masks=masks, resamples=resamples, seed=seed
        )
        if names is not None
        else (),
        None if quality is None else quality.detach().double().to(labels.device),
        tuple(fars),
        tuple(fpirs),
        resample_pairs(features, labels, counted, score, masks, resamples=resamples, seed=seed),
        rows,
    )


@dataclass(frozen=True, repr=False)
class OpenSetReport(Report):
    """The result of :func:`open_set_report`. Parts for which there is too little data are None.

    >>> labels = torch.arange(12).repeat(4)
    >>> report = open_set_report(torch.eye(12)[labels] + 0.05 * torch.randn(48, 12), labels, fars=[1e-2])
    >>> float(report.eer), float(report.retrieval.mean_average_precision), report.threshold(far=1e-2) > 0.1
    (0.0, 1.0, True)
    """

    pairs: AllPairs
    ranking: Ranking
    labels: Int[Tensor, "n"]
    identification: IdentificationReport
    retrieval: RetrievalReport
    detection: DetectionReport | None
    calibration: ScoreCalibration | None
    calibrated: ScoreReport | None
    categories: tuple[CategoryRates, ...]
    quality: Float[Tensor, "n"] | None
    fars: tuple[float, ...]
    fpirs: tuple[float, ...]
    intervals: PairIntervals
    rows: str = "images"
    title = "open-set recognition of unseen identities"

    @property
    def unit(self) -> str:
        """The unit of scores and thresholds."""
        return self.pairs.unit

    @property
    def eer(self) -> Measurement:
        """Equal error rate of verification over all pairs, with its 95 % interval over identities."""
        return self.intervals.of("eer", self.pairs.roc.eer)

    def tar(self, far: float) -> Measurement:
        """Return the true accept rate at a false accept rate, with its 95 % interval over identities."""
        roc = self.pairs.roc
        return self.intervals.of("tar", wilson(int(roc.accepted_same[roc.at_far(far)]), roc.positives), far)

    def rank(self, k: int = 1) -> Measurement:
        """Return the share of images whose identity is among the first ``k`` identities of a search among the other images."""
        return self.identification.rank(k)

    def threshold(self, *, far: float | None = None, fpir: float | None = None) -> float:
        """Return the threshold for a FAR of pairs, or for an FPIR of strangers. Give exactly one of both.

        The threshold is a cosine, unless the report was made with another ``score``. The FPIR holds for a gallery of the size
        measured here. With more enrolled people, more strangers resemble one of them, and the FPIR at this threshold is higher.
        """
        if (far is None) == (fpir is None):
            raise ValueError("exactly one of far and fpir must be given")
        if far is not None:
            return self.pairs.threshold(far)
        if self.detection is None:
            raise ValueError("fpir needs two identities with several images, got fewer")
        assert fpir is not None
        return self.detection.threshold(fpir)

    def worst_pairs(self) -> tuple[PairErrors, PairErrors]:
        """Return the most confident errors: the different pairs with the highest scores and the same pairs with the lowest."""
        return self.pairs.false_accepts, self.pairs.false_rejects

    def list_confusions(self, count: int = 20) -> list[tuple[int, int, int]]:
        """Return the most frequent confusions of identification as ``(identity, wrong first result, number of images)``."""
        wrong = self.ranking.mated & (self.ranking.rank > 1)
        both = torch.stack([self.labels[wrong], self.ranking.first[wrong]], 1)
        names, counts = both.unique(dim=0, return_counts=True)
        order = counts.argsort(descending=True, stable=True)[:count].tolist()
        return [(int(names[i, 0]), int(names[i, 1]), int(counts[i])) for i in order]

    def rejection(self, far: float) -> list[tuple[float, Measurement]]:
        """Return shares of rejected pairs and the false reject rate of the other pairs, at the threshold of ``far``.

        The quality of a pair is the lower quality of its two images. Pairs with the lowest quality are rejected first. Raises
        ``ValueError`` if the report was made without quality.
        """
        if self.quality is None:
            raise ValueError("rejection needs quality, which open_set_report was not given")
        same, threshold = self.pairs.same, self.threshold(far=far)
        pair_quality = torch.minimum(self.quality[same.first], self.quality[same.second])
        order = pair_quality.argsort(stable=True)
        is_missed, owner = (same.scores < threshold)[order], self.labels[same.first[order]]
        starts = [int(share * len(order)) for share in REJECTED_SHARES]
        rates = [clustered_mean(is_missed[start:], owner[start:]) for start in starts]
        return list(zip(REJECTED_SHARES, rates, strict=True))

    def figures(self) -> list[Figure]:
        """Return all figures with unit, interval and count."""
        roc, probes = self.pairs.roc, len(self.identification.ranks)
        figures = [
            Figure(self.rows, len(self.labels), self.rows),
            Figure("identities", int(self.labels.unique().numel()), "identities"),
            Figure("same pairs", roc.positives, "pairs"),
            Figure("different pairs", roc.negatives, "pairs"),
            *rate_figures(roc, self.fars, self.pairs.threshold, self.pairs.unit, self.intervals),
            *(
                Figure.of(f"rank-{k}", self.rank(k), count=probes)
                for k in (1, 5)
                if k <= self.identification.identities
            ),
            *(figure for figure in self.retrieval.figures() if not figure.name.startswith("recall")),
        ]
        if self.detection is not None:
            figures += self.detection.figures(self.fpirs)
        if self.calibrated is not None:
            figures += self.calibrated.figures()
        for category in self.categories:
            figures += category.figures()
        if self.quality is not None and (resolved := roc.resolve_fars(self.fars)):
            at = f"@FAR={format_rate(resolved[-1])}"
            figures += [
                Figure.of(f"FRR{at} without the worst {share:.0%}", rate, count=round((1 - share) * roc.positives))
                for share, rate in self.rejection(resolved[-1])
            ]
        return figures

    def data(self, points: int = 500) -> dict[str, dict[str, list[float]]]:
        """Return curves and histograms as lists of at most ``points`` numbers, for drawing with other tools.

        ``roc`` has far, tar and threshold, ``det`` has far and frr, and ``cmc`` and ``image_cmc`` have rank and rate.
        ``histogram`` has the lower edges of the bins, under the unit of the score, and the shares of same and different pairs.
        """
        roc = self.pairs.roc
        kept = _select_points(roc.far, roc.tar, points)
        far, tar = roc.far[kept].tolist(), roc.tar[kept].tolist()
        thresholds = roc.thresholds[kept].clamp(*self.pairs.span).tolist()
        result = {
            "roc": {"far": far, "tar": tar, "threshold": thresholds},
            "det": {"far": far, "frr": (1 - roc.tar[kept]).tolist()},
        }
        for name, curve in (("cmc", self.identification.cmc), ("image_cmc", self.identification.image_cmc)):
            result[name] = {"rank": list(range(1, min(len(curve), points) + 1)), "rate": curve[:points].tolist()}
        low, high = self.pairs.span
        same, different = self.pairs.same_histogram.double(), self.pairs.different_histogram.double()
        result["histogram"] = {
            self.pairs.unit: [low + (high - low) * i / BINS for i in range(BINS)],
            "same": (same / same.sum()).tolist(),
            "different": (different / different.sum()).tolist(),
        }
        return result

    def plot(self, ax: Any = None) -> tuple[Any, Any]:
        """Draw the ROC curve of all pairs."""
        roc = self.pairs.roc
        name = f"EER {100 * self.eer:.3g} %\nrank-1 {100 * self.rank(1):.4g} %"
        return plots.plot_roc({name: (roc.far, roc.tar)}, title=self.title, ax=ax)


def _select_points(far: Float[Tensor, "n"], tar: Float[Tensor, "n"], points: int) -> Int[Tensor, "k"]:
    """Return the indices of at most ``points`` points of a curve, evenly spaced in log FAR and in TAR, including the ends."""
    if points < 4:
        raise ValueError(f"points must be an integer ≥ 4, got {points!r}")
    if len(far) <= points:
        return torch.arange(len(far), device=far.device)
    lowest = math.log10(far[far > 0].min().item())
    fars = torch.logspace(lowest, 0, points // 2 - 1, dtype=far.dtype, device=far.device)
    tars = torch.linspace(0, 1, points // 2 - 1, dtype=far.dtype, device=far.device)
    ends = torch.tensor([0, len(far) - 1], device=far.device)
    index = torch.cat([torch.searchsorted(far, fars), torch.searchsorted(tar.contiguous(), tars), ends])
    return index.clamp_max(len(far) - 1).unique()


def rank_images(
    features: Float[Tensor, "n d"], labels: Int[Tensor, "n"], masks: QueryGallery, score: Score, chunk: int
) -> Ranking:
    """Rank the gallery for every query. No query is compared with itself. Images that are not queries have rank 0."""
    q, g = masks
    of_queries = rank_probes(features[q], labels[q], features[g], labels[g], chunk, own=_find_own(masks), score=score)
    low = of_queries.best.new_full((len(labels),), -torch.inf)
    of_images = Ranking(low, low.clone(), torch.zeros_like(labels), torch.zeros_like(labels), labels.clone())
    for column, values in zip(of_images, of_queries, strict=True):
        column[q] = values
    return of_images


def summarize_ranks(ranked: Ranking, labels: Int[Tensor, "n"], masks: QueryGallery) -> IdentificationReport:
    """Summarize the ranks of the queries that have a mate in the gallery."""
    mated = ranked.mated
    identities = int(labels[masks.gallery].unique().numel())
    images = int(masks.gallery.sum()) - int((masks.gallery & masks.queries).any())
    return IdentificationReport(ranked.rank[mated], identities, ranked.image_rank[mated], max(images, 1), labels[mated])


def measure_retrieval(
    features: Float[Tensor, "n d"],
    labels: Int[Tensor, "n"],
    masks: QueryGallery,
    score: Score,
    chunk: int,
    ranked: Ranking,
) -> RetrievalReport:
    """Measure retrieval; ``ranked`` marks the queries that have a mate in the gallery."""
    q, g = masks
    report = retrieval(features[q], labels[q], features[g], labels[g], own=_find_own(masks), score=score, chunk=chunk)
    return replace(report, owners=labels[ranked.mated])


def measure_detection(
    features: Float[Tensor, "n d"], labels: Int[Tensor, "n"], masks: QueryGallery, score: Score, seed: int, chunk: int
) -> DetectionReport | None:
    """Measure open-set identification. Return None if there is too little data.

    If no image is both query and gallery, and some queries have identities that are not in the gallery, these queries are
    the strangers and the whole gallery is enrolled. Otherwise, a random half of the identities with a mate is enrolled: all
    their gallery images if no image is both query and gallery, one random image per identity otherwise.
    """
    q, g = masks
    are_disjoint = not bool((q & g).any())
    if are_disjoint and not torch.isin(labels[q], labels[g]).all():
        gallery, probe = g, q
    else:
        identities = _list_mated_identities(labels, masks, are_disjoint)
        if len(identities) < 2:
            return None
        stream = Stream(seed, TEMPLATE)
        enrolled = identities[stream.permutation(len(identities))[: len(identities) // 2].to(labels.device)]
        gallery = g & torch.isin(labels, enrolled)
        probe = q.clone()
        if not are_disjoint:
            template, _ = split_one_per_class(labels, stream)
            is_template = torch.zeros_like(g)
            is_template[template] = True
            gallery &= is_template
            probe &= ~gallery
    if not gallery.any() or not probe.any():
        return None
    ranked = rank_probes(features[probe], labels[probe], features[gallery], labels[gallery], chunk, score=score)
    if ranked.mated.all() or not ranked.mated.any():
        return None
    return DetectionReport(ranked, score.unit, labels[probe])


def calibrate_on_halves(
    features: Float[Tensor, "n d"], labels: Int[Tensor, "n"], score: Score, seed: int
) -> tuple[ScoreCalibration, ScoreReport] | None:
    """Fit probabilities on pairs of one half of the identities and evaluate them on the other half."""
    halves = []
    for members in identity_split(labels.cpu(), [0.5, 0.5], seed):
        own_labels = labels.cpu()[members]
        same, different = count_pairs(own_labels)
        if not same or not different:
            return None
        limit = MAX_CALIBRATION_PAIRS
        drawn = pairs(own_labels, min(same, limit), min(different, limit), seed=seed)
        scores = score_pairs(score, score.rows(features[members.to(features.device)]), drawn.index)
        halves.append((scores, drawn.same.to(features.device)))
    fitted = calibrate_scores(*halves[0])
    return fitted, fitted.evaluate(*halves[1])


def _find_own(masks: QueryGallery) -> Int[Tensor, "q"]:
    """Return the index of each query in the gallery, −1 if it is not part of it."""
    index = masks.gallery.long().cumsum(0) - 1
    return index.masked_fill(~masks.gallery, -1)[masks.queries]


def _list_mated_identities(labels: Int[Tensor, "n"], masks: QueryGallery, are_disjoint: bool) -> Int[Tensor, "k"]:
    """Return the identities with at least one image to enroll and another one to search with."""
    identities, counts = labels[masks.gallery].unique(return_counts=True)
    return identities[torch.isin(identities, labels[masks.queries]) if are_disjoint else counts > 1]
