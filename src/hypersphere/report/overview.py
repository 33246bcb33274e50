"""The first and the last part of a page: what was trained and how well; choices, data, environment and commands."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from ..evaluation import Baseline, Evidence, summarize_baselines
from .page_parts import Block, Commands, Grid, Note, PageFacts, Section
from .runs import RunRecord
from .wording import duration, text, title, value

FIRST = ("eer", "tar", "rank1", "one_shot", "published_runs", "accuracy", "balanced_accuracy", "auc")


def result_section(run: RunRecord) -> Section:
    """Return the main figures of a run large, and all of them in a table."""
    shown = {key: number for key, number in run.metrics.items() if key != "steps" and not key.startswith("energy/")}
    items = [(title(key).capitalize(), value(key, shown[key]), "") for key in FIRST if key in shown][:4]
    if "steps" in run.metrics:
        items.append(("Steps", text(run.metrics["steps"]), ""))
    if run.seconds:
        items.append(("Wall time", duration(run.seconds), ""))
    if run.evidence is not None:
        items.append(("Features", f"{run.evidence.features.shape[1]}-D", ""))
    blocks: list[Block] = baseline_blocks(run.baselines)[:1]
    blocks += [PageFacts(items)] if items else []
    blocks += baseline_blocks(run.baselines)[1:]
    if not run.metrics:
        blocks.append(Note("The run has not ended yet: there are no final measures."))
    if run.task:
        blocks.append(Grid("What was trained", ["", ""], [[key, text(item)] for key, item in run.task.items()]))
    if shown:
        rows = [[title(key), value(key, number)] for key, number in shown.items()]
        blocks.append(Grid("All measures at the end", ["measure", "value"], rows, numeric=True, folded=True))
    return Section("result", "Result", blocks)


def baseline_blocks(baselines: Sequence[Baseline], network: str = "the trained network") -> list[Block]:
    """Return the sentence about simple methods and the table of them; nothing if none were measured.

    >>> from hypersphere.evaluation import Measurement
    >>> close = Baseline("PCA", Measurement(0.1, 0.05, 0.15), Measurement(0.01, -0.02, 0.04))
    >>> [type(block).__name__ for block in baseline_blocks([close])]
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
    header = ["method", "EER in %", "network minus method, in points", "clearly beaten"]
    title_ = "Simple methods and pretrained networks on the same identities, with 95 % intervals"
    return [Note(f"{summary[0].upper()}{summary[1:]}."), Grid(title_, header, rows, numeric=True)]


def choices_section(runs: Sequence[RunRecord]) -> Section | None:
    """Return what was chosen automatically and why, and every setting; None where a run says neither."""
    blocks: list[Block] = []
    for run in runs:
        who = f", {run.name}" if len(runs) > 1 else ""
        if run.choices:
            rows = [[text(choice.get(key, "")) for key in ("key", "value", "reason")] for choice in run.choices]
            blocks.append(Grid(f"Choices and their reasons{who}", ["choice", "value", "reason"], rows))
    for run in runs:
        who = f", {run.name}" if len(runs) > 1 else ""
        rows = [[key, text(item)] for key, item in run.settings.items()]
        if rows:
            blocks.append(Grid(f"Every setting{who} ({len(rows)})", ["setting", "value"], rows, folded=True))
    return Section("choices", "Choices and settings", blocks) if blocks else None


def data_section(runs: Sequence[RunRecord]) -> Section | None:
    """Return what a check of the data found, and what the samples shown here say of them; None where there is neither."""
    blocks: list[Block] = []
    for run in runs:
        who = f", {run.name}" if len(runs) > 1 else ""
        if run.check:
            blocks.append(Grid(f"Check of the data{who}", ["finding", ""], list(_findings(run.check))))
        if run.evidence is not None and len(run.evidence.labels):
            blocks.append(Grid(f"Samples on this page{who}", ["", ""], list(_samples(run.evidence))))
    return Section("data", "Data", blocks) if blocks else None


def repeat_section(runs: Sequence[RunRecord], paths: Sequence[str]) -> Section:
    """Return how to do it again, and on what it was done."""
    blocks: list[Block] = []
    for run in runs:
        who = f", {run.name}" if len(runs) > 1 else ""
        blocks.append(Commands(f"The run{who}", list(_again(run))))
    blocks.append(Commands("This page", [shlex.join(["hypersphere", "report", *paths])]))
    for run in runs:
        if run.environment:
            who = f", {run.name}" if len(runs) > 1 else ""
            rows = [[key, text(item)] for key, item in run.environment.items() if not isinstance(item, dict)]
            rows += [[key, text(item)] for key, item in run.environment.get("packages", {}).items()]
            blocks.append(Grid(f"Environment{who}", ["", ""], rows, folded=True))
    return Section("repeat", "Repeat it", blocks)


def _again(run: RunRecord) -> Iterator[str]:
    versions = run.environment.get("packages", {})
    version = run.environment.get("hypersphere")
    if version:
        torch_version = str(versions.get("torch", "")).partition("+")[0]
        wanted = [f"torch-hypersphere[train]=={version}", *([f"torch=={torch_version}"] if torch_version else [])]
        yield shlex.join(["pip", "install", *wanted])
    if run.command:
        yield run.command
    elif "settings" in run.document:
        yield "# made in Python with Trainer(task, folder, settings); its settings are in config.json"
    else:
        code = (
            "from hypersphere.training import Experiment, from_json; "
            f"Experiment(from_json(open({str(run.folder / 'config.json')!r}).read()), 'again').run()"
        )
        yield shlex.join(["python", "-c", code])


def _findings(check: Mapping[str, Any]) -> Iterator[list[str]]:
    for key, item in check.items():
        if key == "format":
            continue
        if isinstance(item, list | dict) and item and not _flat(item):
            listed = list(item.items()) if isinstance(item, dict) else item
            first = "; ".join(text(entry) for entry in listed[:3])
            yield [key.replace("_", " "), f"{len(item):,}: {first}{' …' if len(item) > 3 else ''}"]
        else:
            yield [key.replace("_", " "), text(item)]


def _flat(item: Any) -> bool:
    values = list(item.values()) if isinstance(item, dict) else item
    return len(values) <= 6 and all(isinstance(entry, int | float) for entry in values)


def _samples(evidence: Evidence) -> Iterator[list[str]]:
    counts = torch.bincount(evidence.labels)
    counts = counts[counts > 0]
    yield ["samples", f"{len(evidence.labels):,} of {evidence.total:,} that were measured"]
    yield ["classes", f"{len(counts):,} of {len(evidence.classes):,}"]
    spread = f"{int(counts.min())} to {int(counts.max())}, median {int(counts.median())}"
    yield ["samples of a class", spread]
    if evidence.images is not None:
        channels = evidence.images.shape[3]
        yield [
            "pictures",
            f"{evidence.images.shape[1]} × {evidence.images.shape[2]}, {channels} channel{'s' * (channels > 1)}",
        ]
        _, owner = evidence.images.flatten(1).unique(dim=0, return_inverse=True)
        alike = torch.bincount(owner)[owner] > 1
        crossed = sum(len(evidence.labels[owner == group].unique()) > 1 for group in owner[alike].unique().tolist())
        said = f"{int(alike.sum()):,} samples have an equal picture"
        yield ["equal pictures", f"{said}; {crossed} such groups have different labels" if alike.any() else "none"]
