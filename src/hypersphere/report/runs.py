"""The content of run folders."""

import functools
import math
import os
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..config import flatten
from ..evaluation import Baseline, Evidence, Figure
from ..evaluation.evidence import FILE as EVIDENCE
from ..files import read_json, read_tensor
from ..training.run_folder import RunFolder, read_log, stored_document

CHOICES, CHECK, COMMAND, REPORT = "choices.json", "check.json", "command.txt", "report.json"


@dataclass(frozen=True)
class RunRecord:
    r"""The content of a run folder. Fields whose file is missing are empty or None.

    Attributes:
        name: The name of the run on the page.
        folder: The run folder.
        document: The content of ``config.json``.
        log: The rows of ``log.jsonl``.
        metrics: The measures at the end of training.
        environment: Versions of Python and of packages.
        seconds: Wall-clock time of the run.
        choices: Automatically chosen settings, each with ``key``, ``value`` and ``reason``.
        check: The result of the data check.
        command: The command line that repeats the run.
        evidence: Features and pictures of measured samples.
        baselines: Simple methods and pretrained networks, measured on the same identities.
        figures: The figures of ``report.json`` with their intervals, as the terminal prints them.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "config.json").write_text('{"head": "CosFace"}')
    ...     _ = pathlib.Path(folder, "log.jsonl").write_text('{"step": 0, "loss": 3.0}\n{"step": 1, "loss": 2.5}\n')
    ...     (run,) = read_runs([folder])
    >>> run.settings["head"], run.series("loss"), run.evidence
    ('CosFace', ([0, 1], [3.0, 2.5]), None)
    """

    name: str
    folder: pathlib.Path
    document: dict[str, Any]
    log: list[dict[str, Any]]
    metrics: dict[str, Any]
    environment: dict[str, Any]
    seconds: float
    choices: list[dict[str, Any]]
    check: dict[str, Any]
    command: str
    evidence: Evidence | None
    baselines: tuple[Baseline, ...] = ()
    figures: tuple[Figure, ...] = ()

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """The settings with dotted keys, without facts about the task."""
        return flatten(self.document.get("settings", self.document))

    @functools.cached_property
    def task(self) -> dict[str, Any]:
        """The description of the task, if the run was started from Python objects."""
        task = self.document.get("task")
        return task if isinstance(task, dict) else {}

    def series(self, name: str) -> tuple[list[int], list[float]]:
        """Return the steps at which a measure was logged, and its values."""
        rows = [row for row in self.log if isinstance(row.get(name), int | float)]
        return [row["step"] for row in rows], [row[name] for row in rows]

    def weights(self, *endings: str) -> dict[str, Tensor]:
        """Return the final weights whose names have one of these endings; empty if no weights were saved."""
        path = self.folder / "model.safetensors"
        if not path.is_file():
            return {}
        with safe_open(path, framework="pt") as file:
            return {name: read_tensor(file, name) for name in file.keys() if name.endswith(endings)}  # noqa: SIM118

    def shape(self, layer: str) -> tuple[int, int] | None:
        """Return the number of neurons of a layer and their dimension, or None if the weights do not contain it."""
        path = self.folder / "model.safetensors"
        if not path.is_file():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                neurons, *rest = file.get_slice(f"{layer}.weight").get_shape()
        except SafetensorError:
            return None
        dim = math.prod(rest)
        return (neurons, dim) if neurons > 1 and dim > 1 else None


def read_runs(paths: Sequence[str | os.PathLike[str]]) -> list[RunRecord]:
    """Read run folders and give each run a unique name.

    Args:
        paths: Run folders.

    Returns:
        The content of each folder.

    Raises:
        ValueError: If there is no path, a folder contains no run, or a file of it cannot be read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("first", "second"):
    ...         pathlib.Path(folder, name).mkdir()
    ...         _ = pathlib.Path(folder, name, "config.json").write_text("{}")
    ...     [run.name for run in read_runs([f"{folder}/first", f"{folder}/second"])]
    ['first', 'second']
    """
    if not paths:
        raise ValueError("runs must name at least one run folder, got none")
    folders = [pathlib.Path(path) for path in paths]
    return [_read_run(folder, name) for folder, name in zip(folders, choose_names(folders), strict=True)]


def choose_names(folders: Sequence[pathlib.Path]) -> list[str]:
    """Return a name per folder: the shortest endings of the paths that are all different.

    >>> choose_names([pathlib.Path("a/x"), pathlib.Path("b/x")])
    ['a/x', 'b/x']
    """
    parts = [folder.absolute().parts for folder in folders]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{part[-1]} ({i + 1})" for i, part in enumerate(parts)]  # the same folder twice


def _read_run(folder: pathlib.Path, name: str) -> RunRecord:
    evidence, command = folder / EVIDENCE, folder / COMMAND
    content = _read_json(folder / CHOICES, {"choices": []})
    choices = content.get("choices") if isinstance(content, dict) else None
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        raise ValueError(f"{folder / CHOICES} must contain a list of {{key, value, reason}}")
    return RunRecord(
        name,
        folder,
        stored_document(folder),
        read_log(folder),
        _read_json(folder / "metrics.json", {}),
        _read_json(folder / "environment.json", {}),
        RunFolder(folder).seconds(),
        choices,
        _read_json(folder / CHECK, {}),
        command.read_text(encoding="utf-8").strip() if command.is_file() else "",
        Evidence.load(evidence) if evidence.is_file() else None,
        _read_baselines(folder / REPORT),
        _read_figures(folder / REPORT),
    )


def _read_baselines(path: pathlib.Path) -> tuple[Baseline, ...]:
    """Return the baselines of a run's report, if it has one."""
    report = _read_json(path, {})
    try:
        return tuple(Baseline.from_dict(values) for values in report.get("baselines", ()))
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{path} must list its baselines as {{name, eer, interval, difference, …}}") from error


def _read_figures(path: pathlib.Path) -> tuple[Figure, ...]:
    """Return the figures of a run's report with their intervals, if it has one."""
    report = _read_json(path, {})
    try:
        return tuple(Figure.from_entry(name, entry) for name, entry in report.get("figures", {}).items())
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} must list its figures as {{value, unit, interval, interval over, count}}") from error


def _read_json(path: pathlib.Path, missing: Any) -> Any:
    content = read_json(path)
    return missing if content is None else content
