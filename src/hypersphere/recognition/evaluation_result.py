"""The result of an evaluation: figures, recommended thresholds, comparisons and the worst errors by name."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jaxtyping import Float, Int, UInt8
from torch import Tensor

from .. import plots
from ..evaluation import (
    Baseline,
    CategoryRates,
    DifferenceReport,
    LogisticCalibration,
    Measurement,
    OpenSetReport,
    RetrievalReport,
    ScoreCalibration,
    format_baselines,
    summarize_baselines,
)
from ..evaluation.figures import Figure, Report, describe_intervals, format_rate, format_table
from ._pair_report import PairReport


@dataclass(frozen=True, repr=False)
class Evaluation(Report):
    """The report of an embedder on a source or on a list of pairs.

    Attributes:
        report: All measures.
        comparisons: Comparisons with another embedder on the same pairs.
        facts: The embedder, the source and the options as plain values.
        notes: Requested figures that the data does not resolve.
        names: The name of the image of each row of the report, or of the first image of each template.
        classes: The names of the identities.
        features: The feature of each row of the report.
        labels: The identity of each row, an index into ``classes``.
        pixels: Returns the prepared 8-bit images of rows.
        baselines: Simple methods and pretrained networks on the same pictures, the best first; empty if not measured.
        rejections: The false reject rate over the share of discarded pairs, by quality figure; empty if not measured.
        reranked: Retrieval after re-ranking, None if not measured.
        prefixes: The report on each prefix of the features, by its number of dimensions; empty if not measured.

    >>> embedder = hs.recognition.Embedder(torch.nn.Flatten(), hs.data.PicturePreprocessing(size=(8, 8), channels=1))
    >>> people = torch.randint(0, 256, (10, 8, 8), dtype=torch.uint8).repeat(3, 1, 1).numpy()
    >>> result = hs.recognition.evaluate(embedder, (people, torch.arange(10).repeat(3).numpy()), fars=[1e-2, 1e-4])
    >>> list(result.recommended()), result.notes[0]
    (['FAR=1e-2', 'FPIR=1e-1'], 'FAR 1e-4 is not resolved by 405 different pairs')
    """

    report: OpenSetReport | PairReport
    comparisons: tuple[DifferenceReport, ...]
    facts: dict[str, Any]
    notes: tuple[str, ...]
    names: tuple[str, ...]
    classes: tuple[str, ...]
    features: Float[Tensor, "n d"]
    labels: Int[Tensor, "n"]
    pixels: Callable[[Int[Tensor, "k"]], UInt8[Tensor, "k c h w"]]
    baselines: tuple[Baseline, ...] = ()
    rejections: Mapping[str, Sequence[tuple[float, Measurement]]] = field(default_factory=dict)
    reranked: RetrievalReport | None = None
    prefixes: Mapping[int, OpenSetReport] = field(default_factory=dict)

    @property
    def title(self) -> str:  # type: ignore[override]
        """The title of the report, with the number of images per template if it is not 1."""
        size = self.facts.get("images per template", 1)
        return self.report.title if size == 1 else f"{self.report.title}, templates of {size} images"

    def figures(self) -> list[Figure]:
        """Return the figures of the measures, of re-ranking, of prefixes of the features, and of each comparison."""
        figures = self.report.figures()
        if self.reranked is not None:
            figures += [replace(figure, name=f"re-ranked {figure.name}") for figure in self.reranked.figures()]
        for size, part in self.prefixes.items():
            figures += [
                replace(figure, name=f"first {size} dimensions: {figure.name}")
                for figure in part.figures()
                if not figure.name.startswith("threshold@")
            ]
        for comparison in self.comparisons:
            for figure in comparison.figures():
                name = figure.name if comparison.measure in figure.name else f"{comparison.measure}: {figure.name}"
                figures.append(replace(figure, name=name))
        return figures

    def plot(self, ax: Any = None) -> tuple[Any, Any]:
        """Draw the plot of the report."""
        return self.report.plot(ax)

    def plot_rejection(self, ax: Any = None) -> tuple[Any, Any]:
        """Draw the false reject rate over the share of discarded pairs, one line per quality figure."""
        if not self.rejections:
            raise ValueError(
                "there are no rejections: evaluate with quality=True and enough pairs for a false accept rate"
            )
        curves = {name: ([s for s, _ in rows], [float(r) for _, r in rows]) for name, rows in self.rejections.items()}
        return plots.plot_rejection(curves, title="error against discarded samples", ax=ax)

    def recommended(self) -> dict[str, float]:
        """Return the threshold of each requested rate that the data resolves, with keys such as ``FAR=1e-3``."""
        prefix = "threshold@"
        return {
            figure.name.removeprefix(prefix): float(figure.value)
            for figure in self.report.figures()
            if figure.name.startswith(prefix)
        }

    def content(self) -> dict[str, Any]:
        """Return everything as plain values: figures with units, intervals and counts, thresholds, facts, worst errors."""
        figures = {figure.name: figure.entry() for figure in self.figures()}
        return {
            "report": self.title,
            "facts": self.facts,
            "figures": figures,
            "recommended thresholds": {"unit": self.report.unit, **self.recommended()},
            "calibration": _describe_calibration(self.report.calibration),
            "baselines": [baseline.to_dict() for baseline in self.baselines],
            "rejection": {
                name: [
                    {"discarded": share, "FRR": float(rate), "low": rate.low, "high": rate.high} for share, rate in rows
                ]
                for name, rows in self.rejections.items()
            },
            "notes": list(self.notes),
            **self._list_errors(),
        }

    def json(self) -> str:
        """Return :meth:`content` as JSON, without NaN or infinity."""
        return json.dumps(self.content(), indent=1, ensure_ascii=False, allow_nan=False)

    def __str__(self) -> str:
        grouped = isinstance(self.report, OpenSetReport) and self.report.categories
        figures = [figure for figure in self.report.figures() if not (grouped and ": " in figure.name)]
        lines = [
            summarize_baselines(self.baselines, "the embedder"),
            format_table(self.title, figures),
            describe_intervals(figures),
        ]
        lines += format_baselines(self.baselines)
        lines += format_categories(self.report.categories) if isinstance(self.report, OpenSetReport) and grouped else []
        lines += [str(comparison) for comparison in self.comparisons]
        thresholds = [f"  at {rate}: {value:.4f} {self.report.unit}" for rate, value in self.recommended().items()]
        lines += ["recommended thresholds", *thresholds] if thresholds else []
        return "\n".join([*filter(None, lines), *(f"note: {note}" for note in self.notes)])

    __repr__ = __str__

    def _list_errors(self) -> dict[str, Any]:
        accepts, rejects = self.report.worst_pairs()
        worst = {
            kind: [
                {"first": self.names[a], "second": self.names[b], "score": round(score, 6)}
                for a, b, score in zip(*(column.tolist() for column in errors), strict=True)
            ]
            for kind, errors in (("false accepts", accepts), ("false rejects", rejects))
        }
        confused = self.report.list_confusions() if isinstance(self.report, OpenSetReport) else []
        return {
            "worst pairs": worst,
            "confused": [
                {"identity": self.classes[a], "taken for": self.classes[b], "times": n} for a, b, n in confused
            ],
        }


def _describe_calibration(fitted: ScoreCalibration | None) -> dict[str, Any] | None:
    """Return the formula that converts scores to probabilities, for other programs."""
    if not isinstance(fitted, LogisticCalibration):
        return None
    return {"log-odds": "slope·score + offset", "slope": fitted.slope, "offset": fitted.offset, "prior": 0.5}


def format_categories(categories: Sequence[CategoryRates]) -> list[str]:
    """Return the lines of a table with the error rates of each category at the common thresholds.

    >>> from hypersphere.evaluation import wilson
    >>> rates = {1e-2: wilson(1, 100)}
    >>> format_categories([CategoryRates("a", 30, 50, 100, rates, rates, None, 0)])[-1].split("  ")[-1].strip()
    '–'
    """
    rates = list(dict.fromkeys(rate for category in categories for rate in category.far))
    header = ["category", "images"]
    for rate in rates:
        header += [f"FAR at {format_rate(rate)}", f"FRR at {format_rate(rate)}"]
    rows = [[*header, "rank-1"]]
    for category in categories:
        cells = [_format_percent(found.get(rate)) for rate in rates for found in (category.far, category.frr)]
        rows.append([category.name, str(category.images), *cells, _format_percent(category.rank_1)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return ["categories, at common thresholds", *(f"  {line}".rstrip() for line in lines)]


def _format_percent(value: Measurement | None) -> str:
    return "–" if value is None else f"{100 * value:.3g} [{100 * value.low:.3g}, {100 * value.high:.3g}] %"
