"""The row of a training run: its metrics, its curve over time, and two-dimensional features to draw."""

import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from hypersphere.config import Call, list_differences
from hypersphere.training import Classification, Config, Experiment, NonFiniteLossError, read_log
from hypersphere.training.run_folder import MARK, stored_document
from hypersphere.training.settings import from_document

from .arms import Row, round_digits

POINTS = 600  # two-dimensional features kept for the picture


def train_and_measure(config: Config, measures: Sequence[Call], folder: pathlib.Path) -> Row:
    """Train or resume a config in a folder, and evaluate it. A run that diverged has no metrics."""
    experiment = open_experiment(folder, config)
    try:
        metrics = experiment.run()
    except NonFiniteLossError:
        return {"metrics": {}, "diverged": True, "curve": _read_curve(folder, config)}
    curve = _read_curve(folder, config)
    metrics = {key: value for key, value in metrics.items() if not key.startswith("energy/")} | _derive_metrics(
        curve, config
    )
    for measure in measures:
        metrics |= measure.build(experiment=experiment, folder=folder)
    return {"metrics": metrics, "curve": curve, **_embed_points(experiment)}


def open_experiment(folder: pathlib.Path, config: Config) -> Experiment:
    """Open an experiment in a folder. A run with the same settings is resumed, another run is replaced."""
    return Experiment(config, folder, fresh=(folder / MARK).exists() and not _can_resume(folder, config))


def _can_resume(folder: pathlib.Path, config: Config) -> bool:
    try:
        return not list_differences(from_document(stored_document(folder)), config)
    except ValueError:  # the run is of an earlier version with other names of settings
        return False


def _read_curve(folder: pathlib.Path, config: Config) -> dict[str, list[float]]:
    """Return the monitored metric and the mean energy of the hidden layers at every evaluation."""
    monitor = config.monitor.lstrip("-")
    rows = [row for row in read_log(folder) if monitor in row]
    curve = {"step": [row["step"] for row in rows], monitor: [round_digits(row[monitor]) for row in rows]}
    energies = [list(_get_hidden_energies(row)) for row in rows]
    if energies and all(energies):
        curve["energy"] = [round_digits(sum(values) / len(values)) for values in energies]
    return curve


def _get_hidden_energies(row: Row) -> Iterator[float]:
    return (value for key, value in row.items() if key.startswith("energy/") and "classifier" not in key)


def _derive_metrics(curve: dict[str, list[float]], config: Config) -> dict[str, float]:
    """Return ``early``, the monitored metric at the first evaluation after the start, the final energy, and its largest change."""
    values = curve[config.monitor.lstrip("-")]
    derived = {"early": values[1]} if len(values) > 2 else {}
    if "energy" in curve:
        energy = curve["energy"]
        drift = max(abs(value - energy[0]) for value in energy) / abs(energy[0])
        derived |= {"energy": energy[-1], "energy_drift": 100 * drift}
    return derived


def _embed_points(experiment: Experiment) -> Row:
    """Return features of test samples and the class weights if they are two-dimensional; only for the first seed."""
    task: Any = experiment.task
    if experiment.config.seed != 0 or not isinstance(task, Classification) or task.summary()["features"] != 2:
        return {}
    index = torch.arange(min(POINTS, len(task.measured_samples)))
    images, labels = task.measured_samples.batch(index)
    task.eval()
    with torch.no_grad():
        features = task.embed_batch(images).float().cpu()
    neurons = task.model.classifier.weight.detach().float().cpu()
    return {"points": {"features": _round_rows(features), "labels": labels.tolist(), "neurons": _round_rows(neurons)}}


def _round_rows(rows: torch.Tensor) -> list[list[float]]:
    return [[round(v, 3) for v in row] for row in rows.tolist()]
