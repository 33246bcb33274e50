"""Everything an open-set user asks of features of identities that were never trained on, in one report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from .. import plots
from ..data.pairs import pairs
from ..data.splits import identity_split
from ..data.streams import TEMPLATE, Stream
from .all_pairs import BINS, AllPairs, PairErrors, all_pairs
from .categories import CategoryRates, category_rates, check_categories
from .detection import DetectionReport
from .features import pair_scores
from .identification import IdentificationReport
from .intervals import Measurement, wilson
from .ranking import Ranking, check_ids, ranking
from .report import Figure, Report, rate_name
from .score_calibration import ScoreCalibration, ScoreReport, calibrate_scores
from .unseen import one_each
from .verification import rates

FARS, FPIRS = (1e-2, 1e-3, 1e-4), (1e-1, 1e-2)
REJECTED = (0.0, 0.05, 0.1, 0.2, 0.3)  # shares of the pairs of lowest quality that are turned away
CALIBRATION_PAIRS = 50_000
Retrieval = Mapping[str, Callable[[Tensor, Tensor], float]]


def open_set_report(
    features: Float[Tensor, "n d"],
    labels: Shaped[Tensor, "..."],
    *,
    fars: Sequence[float] = FARS,
    fpirs: Sequence[float] = FPIRS,
    categories: Sequence[str] | Int[Tensor, "n"] | None = None,
    quality: Float[Tensor, "n"] | None = None,
    retrieval: Retrieval | None = None,
    worst: int = 20,
    seed: int = 0,
    chunk: int = 512,
) -> "OpenSetReport":
    """Evaluate features ``(n, d)`` of identities never trained on, by cosine, exactly and in chunks.

    - Verification compares every two images (:func:`all_pairs`): EER, TAR at ``fars``, and the thresholds giving them.
    - Identification searches the set with each of its images, left out of the gallery meanwhile: rank-k rates.
    - Open-set identification enrols one random image of a random half of the identities that have several; their other
      images are mated probes, the images of all others strangers: TPIR at ``fpirs``, and the thresholds.
    - Calibration fits probabilities on pairs of a random half of the identities and measures them on the other half.

    Args:
        features: Features of images.
        labels: The identity of each image, integers.
        fars: False accept rates of a pair; those the pairs cannot resolve are left out.
        fpirs: False positive identification rates of a stranger; likewise.
        categories: The category of each image (a site, a camera, an age group); error rates of each are measured at the
            common thresholds, over pairs within the category.
        quality: A number for each image, higher is better; false rejects are measured as the worst are turned away.
        retrieval: Further measures of ``(features, labels)`` by name, such as mAP.
        worst: How many of the most confident errors of each kind are listed.
        seed: Seed of the random halves and templates.
        chunk: How many images are compared at a time; it changes nothing but memory.

    >>> labels = torch.arange(30).repeat(6)
    >>> report = open_set_report(torch.eye(30)[labels] + 0.05 * torch.randn(180, 30), labels)
    >>> report.rank(1), report.tar(1e-3)
    (1.0000 [0.9791, 1.0000], 1.0000 [0.9915, 1.0000])
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
    counted = all_pairs(features, labels, worst=worst, chunk=chunk)
    ranked = ranking(features, labels, features, labels, chunk, leave_out=True)
    thresholds = {far: counted.roc.thresholds[counted.roc.at_far(far)].item() for far in counted.roc.resolved(fars)}
    fitted = _calibration(features, labels, seed)
    return OpenSetReport(
        counted,
        ranked,
        labels,
        _identification(ranked, labels),
        _strangers(features, labels, seed, chunk),
        None if fitted is None else fitted[0],
        None if fitted is None else fitted[1],
        category_rates(features, labels, names, ranked, thresholds, chunk) if names is not None else (),
        None if quality is None else quality.detach().double().to(labels.device),
        {name: float(measure(features, labels)) for name, measure in (retrieval or {}).items()},
        tuple(fars),
        tuple(fpirs),
    )


@dataclass(frozen=True, repr=False)
class OpenSetReport(Report):
    """The result of :func:`open_set_report`; parts that the data is too small for are None."""

    pairs: AllPairs
    ranking: Ranking
    labels: Int[Tensor, "n"]
    identification: IdentificationReport
    detection: DetectionReport | None
    calibration: ScoreCalibration | None
    calibrated: ScoreReport | None
    categories: tuple[CategoryRates, ...]
    quality: Float[Tensor, "n"] | None
    retrieval: dict[str, float]
    fars: tuple[float, ...]
    fpirs: tuple[float, ...]
    title = "open-set recognition of unseen identities"

    @property
    def eer(self) -> Measurement:
        """Equal error rate of verification over all pairs."""
        return self.pairs.roc.eer

    def tar(self, far: float) -> Measurement:
        """Return the true accept rate at a false accept rate, with Wilson's 95 % interval over the same pairs."""
        roc = self.pairs.roc
        return wilson(int(roc.accepted_same[roc.at_far(far)]), roc.positives)

    def rank(self, k: int = 1) -> Measurement:
        """Return the share of images whose identity is among the first ``k``, the image itself left out."""
        return self.identification.rank(k)

    def threshold(self, *, far: float | None = None, fpir: float | None = None) -> float:
        """Return the recommended threshold, a cosine, for a FAR of pairs or for an FPIR of strangers before a gallery.

        Exactly one of both must be given. The FPIR is that of the gallery measured here; with more people enrolled a
        stranger has more chances to resemble one, and the same threshold lets more strangers in.
        """
        if (far is None) == (fpir is None):
            raise ValueError("exactly one of far and fpir must be given")
        if far is not None:
            return self.pairs.roc.thresholds[self.pairs.roc.at_far(far)].item()
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
        missed = (same.scores < threshold)[worse.argsort(stable=True)]
        starts = [int(share * len(missed)) for share in REJECTED]
        return [(s, wilson(int(missed[i:].sum()), len(missed) - i)) for s, i in zip(REJECTED, starts, strict=True)]

    def figures(self) -> list[Figure]:
        """Return every figure with unit, interval and count."""
        roc, probes = self.pairs.roc, len(self.identification.ranks)
        figures = [
            Figure("images", len(self.labels), "images"),
            Figure("identities", int(self.labels.unique().numel()), "identities"),
            Figure("same pairs", roc.positives, "pairs"),
            Figure("different pairs", roc.negatives, "pairs"),
            *rates(roc, self.fars, "cosine"),
            *(
                Figure.of(f"rank-{k}", self.rank(k), count=probes)
                for k in (1, 5)
                if k <= self.identification.identities
            ),
            *(Figure(name, value, "fraction", count=probes) for name, value in self.retrieval.items()),
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
        ``histogram`` the lower edges of bins of the cosine and the shares of same and different pairs in them.
        """
        roc = self.pairs.roc
        kept = _thin(roc.far, roc.tar, points)
        far, tar = roc.far[kept].tolist(), roc.tar[kept].tolist()
        thresholds = roc.thresholds[kept].clamp(-1, 1).tolist()
        result = {
            "roc": {"far": far, "tar": tar, "threshold": thresholds},
            "det": {"far": far, "frr": (1 - roc.tar[kept]).tolist()},
        }
        for name, curve in (("cmc", self.identification.cmc), ("image_cmc", self.identification.image_cmc)):
            result[name] = {"rank": list(range(1, min(len(curve), points) + 1)), "rate": curve[:points].tolist()}
        same, different = self.pairs.same_histogram.double(), self.pairs.different_histogram.double()
        result["histogram"] = {
            "cosine": [-1 + 2 * i / BINS for i in range(BINS)],
            "same": (same / same.sum()).tolist(),
            "different": (different / different.sum()).tolist(),
        }
        return result

    def plot(self, ax: Any = None) -> tuple[Any, Any]:
        """Draw the ROC curve of all pairs."""
        roc = self.pairs.roc
        name = f"EER {100 * self.eer:.3g} %\nrank-1 {100 * self.rank(1):.4g} %"
        return plots.plot_roc({name: (roc.far, roc.tar)}, title=self.title, ax=ax)


def _identification(ranked: Ranking, labels: Int[Tensor, "n"]) -> IdentificationReport:
    mated = ranked.mated
    identities = int(labels.unique().numel())
    return IdentificationReport(ranked.rank[mated], identities, ranked.image_rank[mated], len(labels) - 1)


def _strangers(features: Tensor, labels: Int[Tensor, "n"], seed: int, chunk: int) -> DetectionReport | None:
    """Half of the identities with several images are enrolled by one image each; everyone else is a stranger."""
    names, counts = labels.unique(return_counts=True)
    several = names[counts > 1]
    if len(several) < 2:
        return None
    stream = Stream(seed, TEMPLATE)
    enrolled = several[stream.permutation(len(several))[: len(several) // 2].to(labels.device)]
    template, _ = one_each(labels, stream)
    template = template[torch.isin(labels[template], enrolled)]
    probe = torch.ones_like(labels, dtype=torch.bool)
    probe[template] = False
    return DetectionReport(ranking(features[probe], labels[probe], features[template], labels[template], chunk))


def _calibration(features: Tensor, labels: Int[Tensor, "n"], seed: int) -> tuple[ScoreCalibration, ScoreReport] | None:
    """Probabilities fitted on one half of the identities, and how good they are on the other."""
    halves = []
    for members in identity_split(labels.cpu(), [0.5, 0.5], seed):
        mine = labels.cpu()[members]
        sizes = mine.unique(return_counts=True)[1]
        same = int((sizes * (sizes - 1) // 2).sum())
        different = len(mine) * (len(mine) - 1) // 2 - same
        if not same or not different:
            return None
        drawn = pairs(mine, min(same, CALIBRATION_PAIRS), min(different, CALIBRATION_PAIRS), seed=seed)
        index = members[torch.stack([drawn.first, drawn.second], 1)].to(features.device)
        halves.append((pair_scores(features.detach().double(), index), drawn.same.to(features.device)))
    fitted = calibrate_scores(*halves[0])
    return fitted, fitted.evaluate(*halves[1])


def _thin(far: Float[Tensor, "n"], tar: Float[Tensor, "n"], points: int) -> Int[Tensor, "k"]:
    """Indices of at most ``points`` points of a curve: evenly over log FAR and over TAR, the ends among them."""
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
