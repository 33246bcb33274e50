"""A report on open-set recognition of identities that are not in the training set."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from .. import plots
from ._all_pairs import BINS, AllPairs, PairErrors, all_pairs
from ._identification import IdentificationReport
from ._retrieval import RetrievalReport
from ._verification import rate_figures
from .categories import CategoryRates, category_rates, check_categories
from .detection import DetectionReport
from .figures import Figure, Report, rate_name
from .intervals import Measurement, wilson
from .open_set_parts import calibrate_on_halves, measure_retrieval, rank_images, strangers, summarize_ranks
from .pair_intervals import HIGHEST, PairIntervals, resample_pairs
from .query_gallery import query_gallery
from .ranking import Ranking, check_ids
from .resampling import RESAMPLES, clustered_mean
from .score_calibration import ScoreCalibration, ScoreReport
from .scoring import CosineScore, Score
from .thresholds import DEFAULT_FARS, DEFAULT_FPIRS

REJECTED = (0.0, 0.05, 0.1, 0.2, 0.3)  # shares of the pairs that are rejected for low quality


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
    identities were drawn (:class:`~hypersphere.evaluation.pair_intervals.PairIntervals`). Searches keep their gallery.

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
        highest=HIGHEST,
        far=max(fars, default=1e-2),
        chunk=chunk,
        score=score,
        sides=sides,
    )
    ranked = rank_images(features, labels, sides, score, chunk)
    thresholds = {far: counted.threshold(far) for far in counted.roc.resolved(fars)}
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

    def confused(self, count: int = 20) -> list[tuple[int, int, int]]:
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
        if self.quality is not None and (resolved := roc.resolved(self.fars)):
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
