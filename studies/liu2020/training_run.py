"""The row of a training run: its measures, its course, and two-dimensional features to draw."""

import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from hypersphere.config import Call, list_differences
from hypersphere.training import Classification, Config, Experiment, NonFiniteLossError, read_log
from hypersphere.training.run_folder import MARK, stored_document
from hypersphere.training.settings import from_document

from .arms import Row, short

POINTS = 600  # two-dimensional features kept for the picture


def trained_row(config: Config, measures: Sequence[Call], folder: pathlib.Path) -> Row:
    """Train or resume a config in a folder, and measure it; a run that diverged has no metrics."""
    experiment = experiment_in(folder, config)
    try:
        metrics = experiment.run()
    except NonFiniteLossError:
        return {"metrics": {}, "diverged": True, "curve": _curve(folder, config)}
    curve = _curve(folder, config)
    metrics = {key: value for key, value in metrics.items() if not key.startswith("energy/")} | _derived(curve, config)
    for measure in measures:
        metrics |= measure.build(experiment=experiment, folder=folder)
    return {"metrics": metrics, "curve": curve, **_points(experiment)}


def experiment_in(folder: pathlib.Path, config: Config) -> Experiment:
    """The experiment of a config in a folder: resumed where the folder has the same one, begun anew where it has another."""
    return Experiment(config, folder, fresh=(folder / MARK).exists() and not _resumable(folder, config))


def _resumable(folder: pathlib.Path, config: Config) -> bool:
    try:
        return not list_differences(from_document(stored_document(folder)), config)
    except ValueError:  # a run of an earlier version, whose settings have other names
        return False


def _curve(folder: pathlib.Path, config: Config) -> dict[str, list[float]]:
    """The monitored measure and the mean energy of the hidden layers at every evaluation."""
    monitor = config.monitor.lstrip("-")
    rows = [row for row in read_log(folder) if monitor in row]
    curve = {"step": [row["step"] for row in rows], monitor: [short(row[monitor]) for row in rows]}
    energies = [list(_hidden(row)) for row in rows]
    if energies and all(energies):
        curve["energy"] = [short(sum(values) / len(values)) for values in energies]
    return curve


def _hidden(row: Row) -> Iterator[float]:
    return (value for key, value in row.items() if key.startswith("energy/") and "classifier" not in key)


def _derived(curve: dict[str, list[float]], config: Config) -> dict[str, float]:
    """``early``: the monitored measure at the first evaluation after the start; energy at the end, and how far it moved."""
    values = curve[config.monitor.lstrip("-")]
    derived = {"early": values[1]} if len(values) > 2 else {}
    if "energy" in curve:
        energy = curve["energy"]
        drift = max(abs(value - energy[0]) for value in energy) / abs(energy[0])
        derived |= {"energy": energy[-1], "energy_drift": 100 * drift}
    return derived


def _points(experiment: Experiment) -> Row:
    """The first features of the measured set and the classes' neurons where they are two-dimensional, of the first seed."""
    task: Any = experiment.task
    if experiment.config.seed != 0 or not isinstance(task, Classification) or task.summary()["features"] != 2:
        return {}
    index = torch.arange(min(POINTS, len(task.measured_samples)))
    images, labels = task.measured_samples.batch(index)
    task.eval()
    with torch.no_grad():
        features = task.embed_batch(images).float().cpu()
    neurons = task.model.classifier.weight.detach().float().cpu()
    return {"points": {"features": _rounded(features), "labels": labels.tolist(), "neurons": _rounded(neurons)}}


def _rounded(rows: torch.Tensor) -> list[list[float]]:
    return [[round(v, 3) for v in row] for row in rows.tolist()]
