"""Pages about runs, about an evaluation and about the energy of a checkpoint; one function per page."""

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from ..energy.checkpoint_report import LayerReport
from ..evaluation import Baseline, Evidence, Report
from ..training import Callback
from ._render import save
from .energy_charts import make_checkpoint_section, make_energy_section, make_learned_section
from .hard_samples import make_hard_section
from .overview import (
    make_baseline_blocks,
    make_choices_section,
    make_data_section,
    make_figure_blocks,
    make_repeat_section,
    make_result_section,
    select_main_figures,
)
from .page_parts import Block, Commands, Grid, Page, PageFacts, Section, Sheet
from .pictures_sheet import make_sheet
from .runs import RunRecord, read_runs
from .score_charts import ScoredPairs, make_score_section
from .several import make_differing_section, make_measures_section
from .sphere_chart import make_sphere_section
from .training_charts import make_training_section
from .wording import format_setting

MAX_PICTURE_BYTES = 1_500_000  # of all sheets of a page together
FILE = "report.html"
Paths = Sequence[str | os.PathLike[str]]


def write_page(runs: str | os.PathLike[str] | Paths, path: str | os.PathLike[str] | None = None) -> pathlib.Path:
    """Write a page about one run or several and return its path.

    The page is one file that works without a network, with a light and a dark theme. A page about several runs starts with the
    settings that differ, and shows curves and figures side by side.

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
    return save(make_run_page(read, [os.fspath(folder) for folder in folders]), target)


def make_run_page(runs: Sequence[RunRecord], paths: Sequence[str]) -> Page:
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
            sheet = make_sheet(run.evidence.images, MAX_PICTURE_BYTES // len(runs))
            sheets |= {f"run{place}": sheet} if sheet is not None else {}
    several = len(runs) > 1
    sections = [
        *([make_differing_section(runs), make_measures_section(runs)] if several else [make_result_section(runs[0])]),
        make_training_section(runs),
        make_sphere_section(runs, sheets),
        make_score_section(runs, pairs),
        make_hard_section(runs, pairs, sheets),
        make_energy_section(runs),
        make_learned_section(runs),
        make_data_section(runs),
        make_choices_section(runs),
        make_repeat_section(runs, paths),
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
    page = make_run_page([run], [])
    sample_sections = [section for section in page.sections if section.key in ("sphere", "scores", "hard", "data")]
    blocks: list[Block] = []
    main_figures = select_main_figures([figure for report in reports for figure in report.figures()])
    baselines: tuple[Baseline, ...] = tuple(one for report in reports for one in getattr(report, "baselines", ()))
    blocks += make_baseline_blocks(baselines, "the embedder")
    if main_figures:
        blocks.append(PageFacts(main_figures))
    if facts:
        blocks.append(
            Grid("What was evaluated", ["", ""], [[name, format_setting(item)] for name, item in facts.items()])
        )
    for report in reports:
        blocks += make_figure_blocks(report.title, report.figures())
    sections = [Section("result", "Result", blocks), *sample_sections]
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
    sections = [make_checkpoint_section(layers, title, bounded)]
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
        samples, classes = (format_setting(task.get(key)) for key in ("training samples", "classes"))
        return f"{task.get('class', 'A task')}: {samples} samples of {classes} classes."
    names = [run.settings.get(key) for key in ("model", "fit.backbone", "head", "fit.head", "data", "data.name")]
    source = document.get("source", {})
    if isinstance(source, dict) and "images" in source:
        names.append(f"{source['images']} samples of {source.get('identities')} identities in {source.get('source')}")
    return " · ".join(dict.fromkeys(str(name) for name in names if name)) or f"{len(run.settings)} settings."
