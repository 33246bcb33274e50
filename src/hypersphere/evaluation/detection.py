"""Open-set identification: probes whose identity is not in the gallery must be rejected."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from .. import plots
from ._verification import PairIntervals
from .figures import Figure, Report, format_rate
from .intervals import Measurement, wilson
from .ranking import Ranking, rank_probes
from .roc import Roc, resolve_rates, roc_curve
from .thresholds import DEFAULT_FPIRS, choose_threshold


def open_set(
    probes: Float[Tensor, "p d"],
    probe_ids: Shaped[Tensor, "..."],
    gallery: Float[Tensor, "g d"],
    gallery_ids: Shaped[Tensor, "..."],
    *,
    chunk: int = 256,
) -> "DetectionReport":
    """Identify probes by cosine. Some probes are strangers: their identity is not in the gallery.

    At a threshold t, FPIR is the share of strangers whose best score is ≥ t. TPIR at rank k is the share of mated probes
    whose identity has a score ≥ t and a rank ≤ k. A tie increases the rank.

    >>> gallery, ids = torch.eye(3), torch.tensor([0, 1, 2])
    >>> probes = torch.tensor([[1.0, 0.1, 0.0], [0.0, 1.0, 0.2], [1.0, 1.0, 1.0], [-1.0, 0.5, 0.0]])
    >>> report = open_set(probes, torch.tensor([0, 1, 7, 8]), gallery, ids)
    >>> report.tpir(fpir=0.5)
    1.0000 [0.3424, 1.0000]
    """
    result = rank_probes(probes, probe_ids, gallery, gallery_ids, chunk)
    if result.mated.all() or not result.mated.any():
        raise ValueError(
            f"probes must include mated probes and strangers, got {int(result.mated.sum())} mated of {len(probes)}; "
            "use identification if all probes are mated"
        )
    return DetectionReport(result)


class DetectionCurve(NamedTuple):
    """A detection-and-identification curve: FPIR and TPIR at descending thresholds."""

    thresholds: Float[Tensor, "points"]
    fpir: Float[Tensor, "points"]
    tpir: Float[Tensor, "points"]


@dataclass(frozen=True, repr=False)
class DetectionReport(Report):
    """Scores and ranks of all probes, from which :meth:`tpir` and :meth:`curve` compute rates.

    ``owners`` are the identities of all probes, including strangers; if they are given, intervals are over identities.

    >>> probes = torch.tensor([[1.0, 0.1, 0.0], [0.0, 1.0, 0.2], [1.0, 1.0, 1.0], [-1.0, 0.5, 0.0]])
    >>> report = open_set(probes, torch.tensor([0, 1, 7, 8]), torch.eye(3), torch.tensor([0, 1, 2]))
    >>> round(report.threshold(fpir=0.5), 3), report.curve().tpir[-1].item()
    (0.447, 1.0)
    """

    ranking: Ranking
    unit: str = "cosine"
    owners: Int[Tensor, "p"] | None = None
    title = "open-set identification"

    def curve(self, rank: int = 1) -> "DetectionCurve":
        """Return TPIR at ``rank`` and FPIR for every threshold, in descending order."""
        roc = self._count_by_threshold(rank)
        return DetectionCurve(roc.thresholds, roc.far, roc.accepted_same.double() / int(self.ranking.mated.sum()))

    def tpir(self, fpir: float, rank: int = 1, confidence: float = 0.95) -> Measurement:
        """Return TPIR at the lowest threshold with a false positive identification rate of at most ``fpir``.

        Without ``owners``, the interval is Wilson's at this threshold. With ``owners``, identities of mated probes and of
        strangers are resampled, the threshold is chosen again in each resample, and the gallery stays the same; this
        interval always has a confidence of 95 %. Raises ``ValueError`` if there are fewer than 1/fpir strangers.
        """
        roc = self._count_by_threshold(rank)
        mated = int(self.ranking.mated.sum())
        independent = wilson(int(roc.accepted_same[roc.at_far(fpir, "fpir", "strangers")]), mated, confidence)
        if self.owners is None or fpir == 1:
            return independent
        return PairIntervals(*self._compute_scores(rank)[:2], self.owners).of("tar", independent, fpir)

    def threshold(self, fpir: float) -> float:
        """Return the threshold that :meth:`tpir` uses."""
        return choose_threshold(self.ranking.best[~self.ranking.mated], fpir=fpir).threshold

    def figures(self, fpirs: Sequence[float] = (*DEFAULT_FPIRS, 1e-3, 1e-4)) -> list[Figure]:
        """Return TPIR at rank 1 and its threshold for each of ``fpirs`` that the number of strangers resolves."""
        mated = int(self.ranking.mated.sum())
        impostors = len(self.ranking.rank) - mated
        figures = [Figure("mated probes", mated, "probes"), Figure("impostors", impostors, "probes")]
        for fpir in resolve_rates(fpirs, impostors):
            figures.append(Figure.of(f"TPIR@FPIR={format_rate(fpir)}", self.tpir(fpir), count=mated))
            figures.append(Figure(f"threshold@FPIR={format_rate(fpir)}", self.threshold(fpir), self.unit))
        return figures

    def plot(self, ax: Any = None) -> tuple[Any, Any]:
        """Draw the detection-and-identification curve at rank 1."""
        curve = self.curve(1)
        return plots.plot_roc({"rank 1": (curve.fpir, curve.tpir)}, identification=True, title=self.title, ax=ax)

    def _count_by_threshold(self, rank: int) -> Roc:
        """Count correctly identified probes and accepted impostors at every threshold."""
        if rank < 1:
            raise ValueError(f"rank must be an integer ≥ 1, got {rank!r}")
        scores, mated, below = self._compute_scores(rank)
        roc = roc_curve(scores, mated)
        keep = roc.thresholds > below
        return Roc(roc.thresholds[keep], roc.accepted_same[keep], roc.accepted_different[keep])

    def _compute_scores(self, rank: int) -> tuple[Float[Tensor, "p"], Bool[Tensor, "p"], float]:
        """Return the score by which each probe is accepted, which probes are mated, and a score below all others.

        A mated probe with a rank above ``rank`` is never correct, so it gets the score below all others.
        """
        mated = self.ranking.mated
        below = min(float(self.ranking.mate.where(mated, self.ranking.best).min()) - 1, -2.0)
        mated_scores = self.ranking.mate.masked_fill(self.ranking.rank > rank, below)
        return mated_scores.where(mated, self.ranking.best), mated, below
