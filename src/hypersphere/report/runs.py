"""A run as a page needs it: everything that its folder holds, each file where it is there."""

import functools
import json
import os
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..config import flatten
from ..evaluation import Baseline, Evidence
from ..evaluation.evidence import FILE as EVIDENCE
from ..files import read_tensor
from ..training.log import read_log
from ..training.run_folder import RunFolder, stored_document

CHOICES, CHECK, COMMAND, REPORT = "choices.json", "check.json", "command.txt", "report.json"


@dataclass(frozen=True)
class RunRecord:
    """The files of a run folder, read. What a folder does not hold is empty or None.

    ``choices`` are ``{"key", "value", "reason"}`` each; ``check`` is what a check of the data found; ``command`` is the
    command line that made the run.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "config.json").write_text('{"head": "CosFace"}')
    ...     _ = pathlib.Path(folder, "log.jsonl").write_text('{"step": 0, "loss": 3.0}\\n{"step": 1, "loss": 2.5}\\n')
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

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """The settings on one level, without what was found out about the task."""
        return flatten(self.document.get("settings", self.document))

    @functools.cached_property
    def task(self) -> dict[str, Any]:
        """What is said of the task in words, where the run was made of objects."""
        found = self.document.get("task")
        return found if isinstance(found, dict) else {}

    def series(self, name: str) -> tuple[list[int], list[float]]:
        """Return the steps at which a measure was logged, and its values."""
        rows = [row for row in self.log if isinstance(row.get(name), int | float)]
        return [row["step"] for row in rows], [row[name] for row in rows]

    def weights(self, *endings: str) -> dict[str, Tensor]:
        """Return the final weights whose names end so; none where no weights were kept."""
        path = self.folder / "model.safetensors"
        if not path.is_file():
            return {}
        with safe_open(path, framework="pt") as file:
            return {name: read_tensor(file, name) for name in file.keys() if name.endswith(endings)}  # noqa: SIM118

    def shape(self, layer: str) -> tuple[int, int] | None:
        """Return neurons and dimensions of a layer, or None where the weights do not say."""
        path = self.folder / "model.safetensors"
        if not path.is_file():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                neurons, *rest = file.get_slice(f"{layer}.weight").get_shape()
        except SafetensorError:
            return None
        dim = functools.reduce(lambda a, b: a * b, rest, 1)
        return (neurons, dim) if neurons > 1 and dim > 1 else None


def read_runs(paths: Sequence[str | os.PathLike[str]]) -> list[RunRecord]:
    """Return the runs of some folders, each with a name of its own.

    Raises:
        ValueError: If there is no path, or a folder holds no run, or a file of it cannot be read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("first", "second"):
    ...         pathlib.Path(folder, name).mkdir()
    ...         _ = pathlib.Path(folder, name, "config.json").write_text("{}")
    ...     [run.name for run in read_runs([f"{folder}/first", f"{folder}/second"])]
    ['first', 'second']
    """
    if not paths:
        raise ValueError("runs must name at least one folder of a run, got none")
    folders = [pathlib.Path(path) for path in paths]
    return [_read(folder, name) for folder, name in zip(folders, names_of(folders), strict=True)]


def names_of(folders: Sequence[pathlib.Path]) -> list[str]:
    """Return the last part of each path, and as many parts before it as tell them apart.

    >>> names_of([pathlib.Path("a/x"), pathlib.Path("b/x")])
    ['a/x', 'b/x']
    """
    parts = [folder.absolute().parts for folder in folders]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{part[-1]} ({i + 1})" for i, part in enumerate(parts)]  # the same folder twice


def _read(folder: pathlib.Path, name: str) -> RunRecord:
    evidence, command = folder / EVIDENCE, folder / COMMAND
    made = _json(folder / CHOICES, {"choices": []})
    choices = made.get("choices") if isinstance(made, dict) else None
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        raise ValueError(f"{folder / CHOICES} must hold a list of {{key, value, reason}}")
    return RunRecord(
        name,
        folder,
        stored_document(folder),
        read_log(folder),
        _json(folder / "metrics.json", {}),
        _json(folder / "environment.json", {}),
        RunFolder(folder).seconds(),
        choices,
        _json(folder / CHECK, {}),
        command.read_text(encoding="utf-8").strip() if command.is_file() else "",
        Evidence.load(evidence) if evidence.is_file() else None,
        _baselines(folder / REPORT),
    )


def _baselines(path: pathlib.Path) -> tuple[Baseline, ...]:
    """The simple methods of a run's report, if it has one."""
    found = _json(path, {})
    try:
        return tuple(Baseline.from_dict(values) for values in found.get("baselines", ()))
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{path} must list its baselines as {{name, eer, interval, difference, …}}") from error


def _json(path: pathlib.Path, missing: Any) -> Any:
    if not path.is_file():
        return missing
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not readable as JSON: {error}") from error
