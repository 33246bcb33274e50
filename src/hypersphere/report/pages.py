"""Pages about runs, about an evaluation and about the energy of a checkpoint; one function per page."""

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from ..energy.checkpoint_report import LayerReport
from ..evaluation import Baseline, Evidence, Report
from ..training import Callback
from ._render import save
from .energy_charts import checkpoint_section, energy_section, learned_section
from .hard_samples import hard_section
from .overview import (
    baseline_blocks,
    choices_section,
    data_section,
    figure_blocks,
    main_figures,
    repeat_section,
    result_section,
)
from .page_parts import Block, Commands, Grid, Page, PageFacts, Section, Sheet
from .pictures_sheet import sheet_of
from .runs import RunRecord, read_runs
from .score_charts import ScoredPairs, score_section
from .several import differing_section, measures_section
from .sphere_chart import sphere_section
from .training_charts import training_section
from .wording import text

MAX_PICTURE_BYTES = 1_500_000  # of all sheets of a page together
FILE = "report.html"
Paths = Sequence[str | os.PathLike[str]]


def write_page(runs: str | os.PathLike[str] | Paths, path: str | os.PathLike[str] | None = None) -> pathlib.Path:
    """Write a page about one run or several and return its path.

    The page is one file that needs no network, in light and dark. A page about several runs starts with the settings that
    differ, and shows curves and figures side by side.

    Args:
        runs: One run folder or several.
        path: The file to write, ``report.html`` in the first folder by default.

    Returns:
        The path of the page.

    Raises:
        ValueError: If a folder contains no run, or the page would be larger than five megabytes.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "config.json").write_text('{"head": "CosFace", "steps": 100}')
    ...     write_page(folder).name
    'report.html'
    """
    folders = [runs] if isinstance(runs, str | os.PathLike) else list(runs)
    read = read_runs(folders)
    target = read[0].folder / FILE if path is None else path
    return save(run_page(read, [os.fspath(folder) for folder in folders]), target)


def run_page(runs: Sequence[RunRecord], paths: Sequence[str]) -> Page:
    """Return the page about runs.

    Args:
        runs: The content of run folders.
        paths: The folders as the user named them, for the command that writes the page again.
    """
    pairs = {
        run.name: ScoredPairs.of(run.evidence)
        for run in runs
        if run.evidence is not None and len(run.evidence.labels) > 1
    }
    sheets: dict[str, Sheet] = {}
    for place, run in enumerate(runs):
        if run.evidence is not None and run.evidence.images is not None:
            sheet = sheet_of(run.evidence.images, MAX_PICTURE_BYTES // len(runs))
            sheets |= {f"run{place}": sheet} if sheet is not None else {}
    several = len(runs) > 1
    sections = [
        *([differing_section(runs), measures_section(runs)] if several else [result_section(runs[0])]),
        training_section(runs),
        sphere_section(runs, sheets),
        score_section(runs, pairs),
        hard_section(runs, pairs, sheets),
        energy_section(runs),
        learned_section(runs),
        data_section(runs),
        choices_section(runs),
        repeat_section(runs, paths),
    ]
    title = " · ".join(run.name for run in runs) if len(runs) <= 4 else f"{len(runs)} runs"
    subtitle = f"{len(runs)} runs side by side." if several else _describe(runs[0])
    return Page(title, subtitle, [section for section in sections if section is not None], sheets)


def write_evaluation(
    reports: Sequence[Report],
    path: str | os.PathLike[str],
    *,
    title: str = "Evaluation",
    evidence: Evidence | None = None,
    facts: Mapping[str, Any] | None = None,
    command: str = "",
) -> pathlib.Path:
    """Write a page about an evaluation: reports as tables, and charts and pictures of the features.

    Args:
        reports: Any reports of :mod:`hypersphere.evaluation`.
        path: The file to write.
        title: What was evaluated.
        evidence: Features with labels and pictures. The sphere, histograms, curves and hardest samples need it.
        facts: Further facts by name, such as the embedder's file and the data.
        command: The command line that repeats the evaluation.

    Returns:
        The path of the page.

    >>> import tempfile
    >>> report = hs.evaluation.verification(torch.rand(40), torch.arange(40) % 2 == 0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_evaluation([report], f"{folder}/page.html", title="Pairs").name
    'page.html'
    """
    run = RunRecord(title, pathlib.Path(), {}, [], {}, {}, 0.0, [], {}, command, evidence)
    page = run_page([run], [])
    kept = [section for section in page.sections if section.key in ("sphere", "scores", "hard", "data")]
    blocks: list[Block] = []
    large = main_figures([figure for report in reports for figure in report.figures()])
    simple: tuple[Baseline, ...] = tuple(one for report in reports for one in getattr(report, "baselines", ()))
    blocks += baseline_blocks(simple, "the embedder")
    if large:
        blocks.append(PageFacts(large))
    if facts:
        blocks.append(Grid("What was evaluated", ["", ""], [[name, text(item)] for name, item in facts.items()]))
    for report in reports:
        blocks += figure_blocks(report.title, report.figures())
    sections = [Section("result", "Result", blocks), *kept]
    if command:
        sections.append(Section("repeat", "Repeat it", [Commands("The evaluation", [command])]))
    return save(Page(title, "An evaluation of features by angle.", sections, page.sheets), path)


def write_energy(
    layers: Sequence[LayerReport],
    path: str | os.PathLike[str],
    *,
    title: str = "Energy",
    bounded: bool = True,
    command: str = "",
) -> pathlib.Path:
    """Write a page about the energy of a checkpoint's layers.

    Args:
        layers: The result of :func:`hypersphere.energy.checkpoint_report.energy_report`.
        path: The file to write.
        title: The checkpoint's name.
        bounded: Draw the lower bound. It is known for s = 2 in the full space only.
        command: The command line that repeats the measurement.

    Returns:
        The path of the page.

    >>> import tempfile
    >>> layers = hs.energy.checkpoint_report.energy_report({"fc.weight": torch.randn(10, 8)})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_energy(layers, f"{folder}/energy.html").stat().st_size < 5_000_000
    True
    """
    sections = [checkpoint_section(layers, title, bounded)]
    if command:
        sections.append(Section("repeat", "Repeat it", [Commands("The measurement", [command])]))
    return save(Page(title, f"Hyperspherical energy of {len(layers)} layers beside random ones.", sections), path)


class ReportPage(Callback):
    """A callback that writes the page at the end of a run: ``Trainer(task, folder, callbacks=[ReportPage()])``.

    Args:
        path: The file to write, ``report.html`` in the run folder by default.

    >>> import tempfile, types
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "config.json").write_text('{"head": "CosFace"}')
    ...     ended = types.SimpleNamespace(main=True, folder=types.SimpleNamespace(path=folder))  # stands for a trainer
    ...     ReportPage(f"{folder}/page.html").on_end(ended, {})
    ...     pathlib.Path(folder, "page.html").is_file()
    True
    """

    def __init__(self, path: str | os.PathLike[str] | None = None):
        self.path = path

    def on_end(self, trainer: Any, metrics: dict[str, float]) -> None:
        """Write the page from the main process."""
        if trainer.main:
            if self.path is None:
                trainer.folder.record(FILE)
            write_page(trainer.folder.path, self.path)


def _describe(run: RunRecord) -> str:
    document, task = run.document, run.task
    if task:
        return f"{task.get('class', 'A task')}: {text(task.get('training samples'))} samples of {text(task.get('classes'))} classes."
    names = [run.settings.get(key) for key in ("model", "fit.backbone", "head", "fit.head", "data", "data.name")]
    source = document.get("source", {})
    if isinstance(source, dict) and "images" in source:
        names.append(f"{source['images']} images of {source.get('identities')} identities in {source.get('source')}")
    return " · ".join(dict.fromkeys(str(name) for name in names if name)) or f"{len(run.settings)} settings."
