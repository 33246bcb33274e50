"""Sections about a whole run: results, choices, data, environment, and the commands that repeat it."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from ..evaluation import Baseline, Evidence, Figure, summarize_baselines
from ..evaluation.figures import describe_intervals
from .page_parts import Block, Commands, Grid, Note, PageFacts, Section
from .runs import RunRecord
from .wording import format_duration, format_setting, format_value, name_measure

MAIN_METRICS = ("eer", "tar", "rank1", "one_shot", "published_runs", "accuracy", "balanced_accuracy", "auc")
MAX_MAIN_FIGURES = 4
MAX_EXAMPLE_CHARACTERS = 200  # of one example of a finding


def make_result_section(run: RunRecord) -> Section:
    """Return the main figures of a run, and tables of all figures.

    A run with a report shows its figures with the same intervals as the terminal. Other runs show their metrics.

    Args:
        run: The content of a run folder.
    """
    metrics = {key: number for key, number in run.metrics.items() if key != "steps" and not key.startswith("energy/")}
    items = select_main_figures(run.figures)
    if not items:
        main_keys = [key for key in MAIN_METRICS if key in metrics][:MAX_MAIN_FIGURES]
        items = [(name_measure(key).capitalize(), format_value(key, metrics[key]), "") for key in main_keys]
    if "steps" in run.metrics:
        items.append(("Steps", format_setting(run.metrics["steps"]), ""))
    if run.seconds:
        items.append(("Wall time", format_duration(run.seconds), ""))
    if run.evidence is not None:
        items.append(("Features", f"{run.evidence.features.shape[1]}-D", ""))
    blocks: list[Block] = make_baseline_blocks(run.baselines)[:1]
    blocks += [PageFacts(items)] if items else []
    blocks += make_baseline_blocks(run.baselines)[1:]
    if not run.metrics:
        blocks.append(Note("The run has not finished, so there are no final measures."))
    blocks += make_figure_blocks("Report", run.figures)
    if run.task:
        blocks.append(
            Grid("What was trained", ["", ""], [[key, format_setting(item)] for key, item in run.task.items()])
        )
    if metrics:
        rows = [[name_measure(key), format_value(key, number)] for key, number in metrics.items()]
        caption = "Measures at the end of training" if run.figures else "All measures at the end"
        blocks.append(Grid(caption, ["measure", "value"], rows, numeric=True, folded=True))
    return Section("result", "Result", blocks)


def select_main_figures(figures: Sequence[Figure]) -> list[tuple[str, str, str]]:
    """Return name, value and interval of the first figures that have an interval.

    >>> select_main_figures([Figure("pairs", 90), Figure("EER", 0.25, "fraction", 0.1, 0.4, 90, "identities")])
    [('EER', '25 %', '[10, 40] %')]
    """
    measured = [figure for figure in figures if figure.low is not None]
    return [figure.cells()[:3] for figure in measured[:MAX_MAIN_FIGURES]]


def make_figure_blocks(caption: str, figures: Sequence[Figure]) -> list[Block]:
    """Return the table of figures as the terminal prints them, and a sentence about their intervals.

    >>> [type(block).__name__ for block in make_figure_blocks("Report", [Figure("EER", 0.25, "fraction", 0.1, 0.4, 90)])]
    ['Grid']
    """
    if not figures:
        return []
    rows = [list(figure.cells()) for figure in figures]
    note = describe_intervals(list(figures))
    table = Grid(caption, ["measure", "value", "95 % interval", "count"], rows, numeric=True)
    return [table, *([Note(f"{note[0].upper()}{note[1:]}.")] if note else [])]


def make_baseline_blocks(baselines: Sequence[Baseline], network: str = "the trained network") -> list[Block]:
    """Return a sentence about the baselines and a table of them; an empty list if none were measured.

    >>> from hypersphere.evaluation import Measurement
    >>> close = Baseline("PCA", Measurement(0.1, 0.05, 0.15), Measurement(0.01, -0.02, 0.04))
    >>> [type(block).__name__ for block in make_baseline_blocks([close])]
    ['Note', 'Grid']
    """
    if not baselines:
        return []
    summary = summarize_baselines(baselines, network)
    rows = []
    for baseline in baselines:
        low, high = (100 * end for end in baseline.eer.interval)
        least, most = (100 * end for end in baseline.difference.interval)
        eer, gap = f"{100 * baseline.eer:.3g} [{low:.3g}, {high:.3g}]", f"{100 * baseline.difference:+.3g}"
        rows.append([baseline.name, eer, f"{gap} [{least:+.3g}, {most:+.3g}]", "yes" if baseline.is_beaten else "no"])
    header = ["method", "EER in %", "network minus method, in percentage points", "clearly beaten"]
    caption = "Simple methods and pretrained networks on the same identities, with 95 % intervals"
    return [Note(f"{summary[0].upper()}{summary[1:]}."), Grid(caption, header, rows, numeric=True)]


def make_choices_section(runs: Sequence[RunRecord]) -> Section | None:
    """Return the automatic choices with their reasons, and all settings; None if there is neither."""
    blocks: list[Block] = []
    for run in runs:
        suffix = f", {run.name}" if len(runs) > 1 else ""
        if run.choices:
            rows = [
                [format_setting(choice.get(key, "")) for key in ("key", "value", "reason")] for choice in run.choices
            ]
            blocks.append(Grid(f"Choices and their reasons{suffix}", ["choice", "value", "reason"], rows))
    for run in runs:
        suffix = f", {run.name}" if len(runs) > 1 else ""
        rows = [[key, format_setting(item)] for key, item in run.settings.items()]
        if rows:
            blocks.append(Grid(f"Every setting{suffix} ({len(rows)})", ["setting", "value"], rows, folded=True))
    return Section("choices", "Choices and settings", blocks) if blocks else None


def make_data_section(runs: Sequence[RunRecord]) -> Section | None:
    """Return the findings of the data check and facts about the samples on the page; None if there is neither."""
    blocks: list[Block] = []
    for run in runs:
        suffix = f", {run.name}" if len(runs) > 1 else ""
        if run.check:
            blocks.append(Grid(f"Check of the data{suffix}", ["finding", ""], list(_list_findings(run.check))))
        if run.evidence is not None and len(run.evidence.labels):
            blocks.append(Grid(f"Samples on this page{suffix}", ["", ""], list(_list_sample_facts(run.evidence))))
    return Section("data", "Data", blocks) if blocks else None


def make_repeat_section(runs: Sequence[RunRecord], paths: Sequence[str]) -> Section:
    """Return the commands that repeat the runs, and the environment of each run."""
    blocks: list[Block] = []
    for run in runs:
        suffix = f", {run.name}" if len(runs) > 1 else ""
        blocks.append(Commands(f"The run{suffix}", list(_list_commands(run))))
    blocks.append(Commands("This page", [shlex.join(["hypersphere", "report", *paths])]))
    for run in runs:
        if run.environment:
            suffix = f", {run.name}" if len(runs) > 1 else ""
            rows = [[key, format_setting(item)] for key, item in run.environment.items() if not isinstance(item, dict)]
            rows += [[key, format_setting(item)] for key, item in run.environment.get("packages", {}).items()]
            blocks.append(Grid(f"Environment{suffix}", ["", ""], rows, folded=True))
    return Section("repeat", "Repeat it", blocks)


def _list_commands(run: RunRecord) -> Iterator[str]:
    versions = run.environment.get("packages", {})
    version = run.environment.get("hypersphere")
    if version:
        torch_version = str(versions.get("torch", "")).partition("+")[0]
        yield f"# hypersphere {version}" + (f", torch {torch_version}" if torch_version else "")
    if run.command:
        yield run.command
    elif "source" in run.document:
        yield "# made in Python with hypersphere.fit(source, folder); its settings are in config.json and choices.json"
    elif "settings" in run.document:
        yield "# made in Python with Trainer(task, folder, settings); its settings are in config.json"
    else:
        code = (
            "from hypersphere.training import Experiment, from_json; "
            f"Experiment(from_json(open({str(run.folder / 'config.json')!r}).read()), 'again').run()"
        )
        yield shlex.join(["python", "-c", code])


def _list_findings(check: Mapping[str, Any]) -> Iterator[list[str]]:
    for key, item in check.items():
        if key == "format":
            continue
        if isinstance(item, list | dict) and item and not _is_short(item):
            listed = list(item.items()) if isinstance(item, dict) else item
            first = "; ".join(_shorten(format_setting(entry)) for entry in listed[:3])
            yield [key.replace("_", " "), f"{len(item):,}: {first}{' …' if len(item) > 3 else ''}"]
        else:
            yield [key.replace("_", " "), format_setting(item)]


def _shorten(text: str) -> str:
    """Return the text, cut off after ``MAX_EXAMPLE_CHARACTERS`` characters."""
    if len(text) <= MAX_EXAMPLE_CHARACTERS:
        return text
    start = text[:MAX_EXAMPLE_CHARACTERS]
    return f"{start.rpartition(',')[0] or start}, …"


def _is_short(item: Any) -> bool:
    values = list(item.values()) if isinstance(item, dict) else item
    return len(values) <= 6 and all(isinstance(entry, int | float) for entry in values)


def _list_sample_facts(evidence: Evidence) -> Iterator[list[str]]:
    counts = torch.bincount(evidence.labels)
    counts = counts[counts > 0]
    yield ["samples", f"{len(evidence.labels):,} of {evidence.total:,} measured samples"]
    yield ["classes", f"{len(counts):,} of {len(evidence.classes):,}"]
    spread = f"{int(counts.min())} to {int(counts.max())}, median {int(counts.median())}"
    yield ["samples per class", spread]
    if evidence.images is not None:
        channels = evidence.images.shape[3]
        yield [
            "pictures",
            f"{evidence.images.shape[1]} × {evidence.images.shape[2]}, {channels} channel{'s' * (channels > 1)}",
        ]
        _, owner = evidence.images.flatten(1).unique(dim=0, return_inverse=True)
        alike = torch.bincount(owner)[owner] > 1
        mixed = sum(len(evidence.labels[owner == group].unique()) > 1 for group in owner[alike].unique().tolist())
        count = f"{int(alike.sum()):,} samples share their picture with another sample"
        yield ["equal pictures", f"{count}; pictures with several labels: {mixed}" if alike.any() else "none"]
