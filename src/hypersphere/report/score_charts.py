"""Charts of recognition: the histogram of angles with a movable threshold, ROC, DET and CMC with intervals."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..evaluation import Evidence, Roc, identification, roc_curve
from ..evaluation.intervals import wilson_band
from ..geometry import normalize
from .page_parts import Block, Chart, Note, Section, arrange_charts, escape_markup, make_key
from .runs import RunRecord

STOPS, BINS = 361, 90  # positions of the threshold, bars of a histogram
NARROW = 30  # degrees; if all angles are smaller, the axis ends at the largest angle
POINTS = 240  # points of a curve
TICKS = (0.0001, 0.001, 0.01, 0.05, 0.2, 0.5, 0.8)


@dataclass(frozen=True)
class ScoredPairs:
    """All pairs of some samples: the two samples, whether they are of one class, and the cosine of their features."""

    first: Int[Tensor, "pairs"]
    second: Int[Tensor, "pairs"]
    same: Bool[Tensor, "pairs"]
    cosine: Float[Tensor, "pairs"]

    @classmethod
    def of(cls, evidence: Evidence) -> "ScoredPairs":
        """Return every pair of samples once."""
        unit = normalize(evidence.features.double())
        first, second = torch.triu_indices(len(unit), len(unit), 1)
        same = evidence.labels[first] == evidence.labels[second]
        return cls(first, second, same, (unit @ unit.T)[first, second].clamp(-1, 1))

    @property
    def both_kinds(self) -> bool:
        """Whether there are pairs of one class and pairs of two classes, which error rates need."""
        return bool(self.same.any()) and not bool(self.same.all())

    @functools.cached_property
    def degrees(self) -> Float[Tensor, "pairs"]:
        """The angles in degrees."""
        return self.cosine.acos() * (180 / math.pi)

    @functools.cached_property
    def roc(self) -> Roc:
        """The ROC curve of the cosines."""
        return roc_curve(self.cosine, self.same)


def make_score_section(runs: Sequence[RunRecord], pairs: dict[str, ScoredPairs]) -> Section | None:
    """Return a histogram of each run and the curves of all; None if no run has pairs of both kinds.

    ``pairs`` contains the pairs of each run by its name.
    """
    useful = [(i, run) for i, run in enumerate(runs) if run.name in pairs and pairs[run.name].both_kinds]
    if not useful:
        return None
    blocks: list[Block] = [_describe_pairs(runs, pairs, [run for _, run in useful])]
    alone = len(useful) == 1
    blocks += arrange_charts([make_threshold_chart(i, run.name, pairs[run.name], alone) for i, run in useful])
    rocs = [(i, run.name, pairs[run.name].roc) for i, run in useful]
    ranked = [(i, run.name, run.evidence) for i, run in useful if run.evidence is not None]
    blocks += arrange_charts([make_roc_chart(rocs), make_det_chart(rocs), make_cmc_chart(ranked)])
    return Section("scores", "Angles and errors", blocks)


def make_threshold_chart(place: int, name: str, pairs: ScoredPairs, alone: bool = True) -> Chart:
    """Return the histogram of angles of both kinds of pairs, with error rates at 361 thresholds.

    The axis ends at 180°, or at the largest angle if all angles are small.
    """
    top = float(pairs.degrees.max())
    top = 180.0 if top > NARROW else max(1.02 * top, 1e-6)
    stops = torch.linspace(0, top, STOPS, dtype=torch.float64)
    kinds = [pairs.degrees[kind] for kind in (pairs.same, ~pairs.same)]
    counts = [torch.histc(degrees, BINS, 0, top) for degrees in kinds]
    width = top / BINS
    centers = [(i + 0.5) * width for i in range(BINS)]
    traces = [
        {"type": "bar", "name": label, "x": centers, "y": 100 * count / (count.sum() * width), "tint": tint, "opacity": 0.75,
         "hovertemplate": "%{x:.4g}°: %{y:.3g} % a degree<extra></extra>"}
        for label, count, tint in zip(("same class", "different classes"), counts, (0, 1), strict=True)
    ]  # fmt: skip
    roc = pairs.roc
    accepted = [torch.searchsorted(degrees.sort().values, stops, right=True) for degrees in kinds]
    bands = [(roc.positives - accepted[0], roc.positives), (accepted[1], roc.negatives)]
    frr, far = (torch.stack([n.double() / total, *wilson_band(n, total)], 1) for n, total in bands)
    equal = float(stops[(far[:, 0] - frr[:, 0]).abs().argmin()])
    marks = [{"name": f"EER {100 * float(roc.eer):.3g} %", "at": equal}]
    # The largest angle at which the false accept rate is not exceeded.
    marks += [
        {"name": f"FAR {100 * r:g} %", "at": float(stops[max(int((far[:, 0] <= r).sum()) - 1, 0)])}
        for r in roc.resolve_fars([0.01, 0.001])
    ]
    extra = {"stops": stops, "far": far, "frr": frr, "marks": marks, "start": equal}
    ticks = {"dtick": 30} if top == 180 else {}
    layout = {
        "barmode": "overlay",
        "bargap": 0,
        "xaxis": {"title": {"text": "angle between two features (°)"}, "range": [0, top], **ticks},
        "yaxis": {"title": {"text": "share of pairs a degree (%)"}},
    }
    summary = (
        f"Histograms of the angles of {roc.positives:,} pairs of one class and {roc.negatives:,} of two; the equal "
        f"error rate is {100 * float(roc.eer):.3g} %, near {equal:.4g} degrees."
    )
    caption = f"Angles of pairs, {name}" if not alone else "Angles of pairs: move the threshold"
    return Chart(make_key("angles", place), caption, summary, traces, layout, "threshold", extra)


def make_roc_chart(rocs: Sequence[tuple[int, str, Roc]]) -> Chart:
    """Return TAR over FAR, FAR logarithmic, with Wilson's 95 % intervals of TAR."""
    traces: list[dict[str, Any]] = []
    parts = []
    for tint, name, roc in rocs:
        kept = _select_points(roc)
        far = 100 * roc.far[kept]
        low, high = (100 * end for end in wilson_band(roc.accepted_same[kept], roc.positives))
        traces += _make_band_traces(name, far, 100 * roc.tar[kept], low, high, tint, "FAR %{x:.3g} %, TAR %{y:.4g} %")
        parts.append(f"{name}: area {float(roc.auc):.4f}")
    layout = {
        "xaxis": {"title": {"text": "false accept rate (%)"}, "type": "log"},
        "yaxis": {"title": {"text": "true accept rate (%)"}},
        "showlegend": len(rocs) > 1,
    }
    return Chart("roc", "ROC", f"True accept rate over false accept rate; {'; '.join(parts)}.", traces, layout)


def make_det_chart(rocs: Sequence[tuple[int, str, Roc]]) -> Chart:
    """Return FRR over FAR on probit axes, on which normal scores give straight lines (detection error trade-off)."""
    traces: list[dict[str, Any]] = []
    parts = []
    for tint, name, roc in rocs:
        kept = _select_points(roc)
        frr = 1 - roc.tar[kept]
        inner = (frr > 0) & (frr < 1)
        far, missed = roc.far[kept][inner], (roc.positives - roc.accepted_same[kept])[inner]
        low, high = wilson_band(missed, roc.positives)
        x, y, under, over = (_compute_probit(rate) for rate in (far, frr[inner], low, high))
        rates = zip(far.tolist(), frr[inner].tolist(), strict=True)
        hover = [f"FAR {100 * a:.3g} %, FRR {100 * b:.3g} %" for a, b in rates]
        traces += _make_band_traces(name, x, y, under, over, tint, "%{text}", text=hover)
        parts.append(f"{name}: equal error rate {100 * float(roc.eer):.3g} %")
    ticks = {"tickvals": _compute_probit(torch.tensor(TICKS)), "ticktext": [f"{100 * t:g}" for t in TICKS]}
    layout = {
        "xaxis": {"title": {"text": "false accept rate (%)"}, **ticks},
        "yaxis": {"title": {"text": "false reject rate (%)"}, **ticks},
        "showlegend": len(rocs) > 1,
    }
    return Chart("det", "DET", f"False reject rate over false accept rate; {'; '.join(parts)}.", traces, layout)


def make_cmc_chart(ranked: Sequence[tuple[int, str, Evidence]]) -> Chart:
    """Return the share of samples whose class is among the first k, every other sample being the gallery."""
    traces: list[dict[str, Any]] = []
    parts = []
    most = 1
    for tint, name, evidence in ranked:
        report = identification(evidence.features, evidence.labels)
        ranks = min(report.identities, 50)
        hits = torch.bincount(report.ranks - 1, minlength=report.identities).cumsum(0)[:ranks]
        low, high = (100 * end for end in wilson_band(hits, len(report.ranks)))
        x, most = torch.arange(1, ranks + 1), max(most, ranks)
        traces += _make_band_traces(
            name, x, 100 * hits.double() / len(report.ranks), low, high, tint, "rank %{x}: %{y:.4g} %"
        )
        parts.append(f"{name}: rank-1 {100 * float(report.rank(1)):.4g} %")
    layout = {
        "xaxis": {"title": {"text": "rank"}, "dtick": 1 if most <= 12 else 5},
        "yaxis": {"title": {"text": "found at that rank or before (%)"}},
        "showlegend": len(ranked) > 1,
    }
    return Chart("cmc", "CMC: each sample searched among the others", f"{'; '.join(parts)}.", traces, layout)


def _describe_pairs(runs: Sequence[RunRecord], pairs: dict[str, ScoredPairs], useful: Sequence[RunRecord]) -> Note:
    parts = []
    for run in useful:
        assert run.evidence is not None
        roc, shown = pairs[run.name].roc, len(run.evidence.labels)
        of = "all" if shown == run.evidence.total else f"{shown:,} of {run.evidence.total:,}"
        parts.append(
            f"{run.name}: {roc.positives:,} pairs of one class and {roc.negatives:,} of two, from {of} samples"
        )
    return Note(
        f"{'; '.join(parts)}. Bands and brackets are Wilson's 95 % intervals of independent pairs of these samples. Pairs of "
        "one person depend on each other, so the intervals over identities in the table of results are wider."
    )


def _make_band_traces(
    name: str, x: Any, y: Any, low: Any, high: Any, tint: int, hover: str, text: list[str] | None = None
) -> list[dict[str, Any]]:
    """Return a line and the area of its interval: two invisible lines, the second filled down to the first."""
    common = {
        "type": "scatter",
        "mode": "lines",
        "x": x,
        "tint": tint,
        "name": escape_markup(name),
        "legendgroup": str(tint),
    }
    labels = {} if text is None else {"text": text}
    return [
        {**common, "y": low, "band": True},
        {**common, "y": high, "band": True, "fill": "tonexty"},
        {**common, **labels, "y": y, "hovertemplate": f"{hover}<extra></extra>", "showlegend": True},
    ]


def _select_points(roc: Roc) -> Int[Tensor, "kept"]:
    """Return points of the curve that differ on a logarithmic axis, on which a rate of 0 cannot be shown."""
    positive = (roc.accepted_different > 0).nonzero().flatten()
    far = roc.far[positive]
    targets = torch.logspace(math.log10(float(far[0])), 0, POINTS, dtype=torch.float64)
    return positive[(torch.searchsorted(far, targets, right=True) - 1).clamp_min(0).unique()]


def _compute_probit(rates: Float[Tensor, "n"]) -> list[float]:
    """Return the normal quantiles of rates. Rates of 0 and 1, which have none, are moved to the ends of the axis."""
    inverse = NormalDist().inv_cdf
    return [inverse(rate) for rate in rates.double().clamp(1e-7, 1 - 1e-7).tolist()]
