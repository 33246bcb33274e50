"""A report on open-set recognition of identities that are not in the training set."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from .. import plots
from ..data.streams import TEMPLATE, Stream, identity_split
from ..data.verification_pairs import pairs
from ._all_pairs import BINS, AllPairs, PairErrors, all_pairs
from ._identification import IdentificationReport, split_one_per_class
from ._retrieval import RetrievalReport, retrieval
from ._verification import HIGHEST_PAIRS, PairIntervals, rate_figures, resample_pairs
from .categories import CategoryRates, category_rates, check_categories
from .detection import DetectionReport
from .figures import Figure, Report, rate_name
from .intervals import RESAMPLES, Measurement, clustered_mean, wilson
from .ranking import QueryGallery, Ranking, check_ids, query_gallery, ranking
from .score_calibration import ScoreCalibration, ScoreReport, calibrate_scores
from .scoring import CosineScore, Score, score_pairs
from .thresholds import DEFAULT_FARS, DEFAULT_FPIRS

REJECTED = (0.0, 0.05, 0.1, 0.2, 0.3)  # shares of the pairs that are rejected for low quality
CALIBRATION_PAIRS = 50_000


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
    """Evaluate features ``(n, d)`` of identities never trained on, by cosine, exactly and in chunks.

    - Verification compares every two images (:func:`all_pairs`): EER, TAR at ``fars``, and the thresholds giving them.
    - Identification searches the set with each of its images, left out of the gallery meanwhile: rank-k rates, and as
      retrieval mAP and MAP@R (:func:`retrieval`).
    - Open-set identification enrols one random image of a random half of the identities that have several; their other
      images are mated probes, the images of all others strangers: TPIR at ``fpirs``, and the thresholds.
      Where ``queries`` have identities that the gallery lacks, those are the strangers and all others are enrolled.
    - Calibration fits probabilities on pairs of a random half of the identities and measures them on the other half.

    Intervals of rates are over identities: these are drawn with replacement, and pairs and probes count as often as their
    identities were drawn (:class:`~hypersphere.evaluation._verification.PairIntervals`). Searches keep their gallery.

    Args:
        features: Features of images.
        labels: The identity of each image, integers.
        fars: False accept rates of a pair; those the pairs cannot resolve are left out.
        fpirs: False positive identification rates of a stranger; likewise.
        categories: The category of each image (a site, a camera, an age group); error rates of each are measured at the
            common thresholds, over pairs within the category.
        quality: A number for each image, higher is better; false rejects are measured as the worst are turned away.
        queries: Which images are searched with; given together with ``gallery``. Only pairs of a query and a gallery
            image are compared then.
        gallery: Which images are searched in.
        score: What is compared, such as :class:`ASNorm`; the cosine by default.
        worst: How many of the most confident errors of each kind are listed.
        resamples: How many times identities are drawn for the intervals of EER, AUC, TAR and of categories.
        seed: Seed of the random halves, templates and resamples.
        chunk: How many images are compared at a time; it changes nothing but memory.
        rows: What the rows of ``features`` are called in the report, such as "templates".

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
    sides = query_gallery(queries, gallery, labels)
    score = CosineScore() if score is None else score
    counted = all_pairs(
        features,
        labels,
        worst=worst,
        highest=HIGHEST_PAIRS,
        far=max(fars, default=1e-2),
        chunk=chunk,
        score=score,
        sides=sides,
    )
    ranked = rank_images(features, labels, sides, score, chunk)
    thresholds = {far: counted.threshold(far) for far in counted.roc.resolve_fars(fars)}
    fitted = calibrate_on_halves(features, labels, score, seed)
    return OpenSetReport(
        counted,
        ranked,
        labels,
        summarize_ranks(ranked, labels, sides),
        measure_retrieval(features, labels, sides, score, chunk, ranked),
        strangers(features, labels, sides, score, seed, chunk),
        None if fitted is None else fitted[0],
        None if fitted is None else fitted[1],
        category_rates(
            features, labels, names, ranked, thresholds, chunk, score=score, sides=sides, resamples=resamples, seed=seed
        )
        if names is not None
        else (),
        None if quality is None else quality.detach().double().to(labels.device),
        tuple(fars),
        tuple(fpirs),
        resample_pairs(features, labels, counted, score, sides, resamples=resamples, seed=seed),
        rows,
    )


@dataclass(frozen=True, repr=False)
class OpenSetReport(Report):
    """The result of :func:`open_set_report`; parts that the data is too small for are None.

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
        """Return the share of images whose identity is among the first ``k``, the image itself left out."""
        return self.identification.rank(k)

    def threshold(self, *, far: float | None = None, fpir: float | None = None) -> float:
        """Return the recommended threshold for a FAR of pairs, or for an FPIR of strangers before a gallery.

        It is a cosine unless another ``score`` was asked for. Exactly one of both must be given. The FPIR is that of the
        gallery measured here; with more people enrolled a stranger has more chances to resemble one, and the same
        threshold lets more strangers in.
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
        """Return the most confident errors: different pairs with the highest cosines, same pairs with the lowest."""
        return self.pairs.false_accepts, self.pairs.false_rejects

    def list_confusions(self, count: int = 20) -> list[tuple[int, int, int]]:
        """Return ``(identity, taken for, times)`` of the most frequent wrong first answers of identification."""
        wrong = self.ranking.mated & (self.ranking.rank > 1)
        both = torch.stack([self.labels[wrong], self.ranking.first[wrong]], 1)
        names, times = both.unique(dim=0, return_counts=True)
        order = times.argsort(descending=True, stable=True)[:count].tolist()
        return [(int(names[i, 0]), int(names[i, 1]), int(times[i])) for i in order]

    def rejection(self, far: float) -> list[tuple[float, Measurement]]:
        """Return the false reject rate at the threshold of ``far`` when a share of the pairs is turned away.

        Pairs go by the lower quality of their two images, the lowest first. Raises ``ValueError`` without quality.
        """
        if self.quality is None:
            raise ValueError("rejection needs quality, which open_set_report was not given")
        same, threshold = self.pairs.same, self.threshold(far=far)
        worse = torch.minimum(self.quality[same.first], self.quality[same.second])
        order = worse.argsort(stable=True)
        missed, owner = (same.scores < threshold)[order], self.labels[same.first[order]]
        starts = [int(share * len(missed)) for share in REJECTED]
        return [(s, clustered_mean(missed[i:], owner[i:])) for s, i in zip(REJECTED, starts, strict=True)]

    def figures(self) -> list[Figure]:
        """Return every figure with unit, interval and count."""
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
            at = f"@FAR={rate_name(resolved[-1])}"
            figures += [
                Figure.of(f"FRR{at} without the worst {share:.0%}", rate, count=round((1 - share) * roc.positives))
                for share, rate in self.rejection(resolved[-1])
            ]
        return figures

    def data(self, points: int = 500) -> dict[str, dict[str, list[float]]]:
        """Return curves and histograms as plain lists, at most ``points`` long, for pages that draw by themselves.

        ``roc`` has far, tar and threshold; ``det`` far and frr; ``cmc`` and ``image_cmc`` rank and rate;
        ``histogram`` the lower edges of bins of the score, by its unit, and the shares of same and different pairs in them.
        """
        roc = self.pairs.roc
        kept = _thin(roc.far, roc.tar, points)
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


def _thin(far: Float[Tensor, "n"], tar: Float[Tensor, "n"], points: int) -> Int[Tensor, "k"]:
    """Return the indices of at most ``points`` points of a curve: even over log FAR and over TAR, including the ends."""
    if points < 4:
        raise ValueError(f"points must be an integer ≥ 4, got {points!r}")
    if len(far) <= points:
        return torch.arange(len(far), device=far.device)
    least = far[far > 0].min().item()
    over_far = torch.logspace(
        torch.tensor(least).log10().item(), 0, points // 2 - 1, dtype=far.dtype, device=far.device
    )
    over_tar = torch.linspace(0, 1, points // 2 - 1, dtype=far.dtype, device=far.device)
    places = [torch.searchsorted(far, over_far), torch.searchsorted(tar.contiguous(), over_tar)]
    ends = torch.tensor([0, len(far) - 1], device=far.device)
    return torch.cat([*places, ends]).clamp_max(len(far) - 1).unique()


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
            template, _ = split_one_per_class(labels, stream)
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
