"""Open-set identification: some probes belong to no identity of the gallery and must be rejected."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from .. import plots
from ._verification import PairIntervals
from .figures import Figure, Report, rate_name
from .intervals import Measurement, wilson
from .ranking import Ranking, ranking
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
    """Identify probes by cosine, of which some are strangers: their identity is not in the gallery.

    At a threshold t, FPIR is the share of strangers whose best score is ≥ t, and TPIR at rank k the share of the
    others whose own identity scores ≥ t and stands among the first k. Ties of rank count against the probe.

    >>> gallery, ids = torch.eye(3), torch.tensor([0, 1, 2])
    >>> probes = torch.tensor([[1.0, 0.1, 0.0], [0.0, 1.0, 0.2], [1.0, 1.0, 1.0], [-1.0, 0.5, 0.0]])
    >>> report = open_set(probes, torch.tensor([0, 1, 7, 8]), gallery, ids)
    >>> report.tpir(fpir=0.5)
    1.0000 [0.3424, 1.0000]
    """
    result = ranking(probes, probe_ids, gallery, gallery_ids, chunk)
    if result.mated.all() or not result.mated.any():
        raise ValueError(
            f"probes must be partly in the gallery and partly not, got {int(result.mated.sum())} of {len(probes)} in it"
        )
    return DetectionReport(result)


class DetectionCurve(NamedTuple):
    """A detection-and-identification curve: rates at every threshold, from the highest down."""

    thresholds: Float[Tensor, "points"]
    fpir: Float[Tensor, "points"]
    tpir: Float[Tensor, "points"]


@dataclass(frozen=True, repr=False)
class DetectionReport(Report):
    """Scores and ranks of all probes; :meth:`tpir` and :meth:`curve` read them at any threshold.

    ``owners`` are the identities of the probes, strangers among them; where they are known, intervals are over identities.

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

        The interval is Wilson's, at the one threshold. Where the probes' identities are known, those of mated probes and
        of strangers are drawn anew, before the same gallery, and the threshold with them (95 %, whatever ``confidence``).
        Raises ``ValueError`` if there are fewer than 1/fpir strangers.
        """
        roc = self._count_by_threshold(rank)
        mated = int(self.ranking.mated.sum())
        alone = wilson(int(roc.accepted_same[roc.at_far(fpir, "fpir", "strangers")]), mated, confidence)
        if self.owners is None or fpir == 1:
            return alone
        return PairIntervals(*self._scores(rank)[:2], self.owners).of("tar", alone, fpir)

    def threshold(self, fpir: float) -> float:
        """Return the threshold behind :meth:`tpir`."""
        return choose_threshold(self.ranking.best[~self.ranking.mated], fpir=fpir).threshold

    def figures(self, fpirs: Sequence[float] = (*DEFAULT_FPIRS, 1e-3, 1e-4)) -> list[Figure]:
        """Return TPIR at rank 1 and its threshold for every one of ``fpirs`` that the strangers resolve."""
        mated = int(self.ranking.mated.sum())
        impostors = len(self.ranking.rank) - mated
        figures = [Figure("mated probes", mated, "probes"), Figure("impostors", impostors, "probes")]
        for fpir in resolve_rates(fpirs, impostors):
            figures.append(Figure.of(f"TPIR@FPIR={rate_name(fpir)}", self.tpir(fpir), count=mated))
            figures.append(Figure(f"threshold@FPIR={rate_name(fpir)}", self.threshold(fpir), self.unit))
        return figures

    def plot(self, ax: Any = None) -> tuple[Any, Any]:
        """Draw the detection-and-identification curve at rank 1."""
        curve = self.curve(1)
        return plots.plot_roc({"rank 1": (curve.fpir, curve.tpir)}, identification=True, title=self.title, ax=ax)

    def _count_by_threshold(self, rank: int) -> Roc:
        """Count correctly identified probes and accepted impostors at every threshold."""
        if rank < 1:
            raise ValueError(f"rank must be an integer ≥ 1, got {rank!r}")
        scores, mated, below = self._scores(rank)
        roc = roc_curve(scores, mated)
        keep = roc.thresholds > below
        return Roc(roc.thresholds[keep], roc.accepted_same[keep], roc.accepted_different[keep])

    def _scores(self, rank: int) -> tuple[Float[Tensor, "p"], Bool[Tensor, "p"], float]:
        """Return the score by which each probe is accepted, which probes are mated, and a score below all others.

        A mated probe that is not among the first ``rank`` is never right: it is put below every score.
        """
        mated = self.ranking.mated
        below = min(float(self.ranking.mate.where(mated, self.ranking.best).min()) - 1, -2.0)
        right = self.ranking.mate.masked_fill(self.ranking.rank > rank, below)
        return right.where(mated, self.ranking.best), mated, below
