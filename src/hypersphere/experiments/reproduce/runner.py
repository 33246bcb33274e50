"""Run a claim: every arm with every seed, once, resumable, one row a finished run in ``results/<id>.jsonl``."""

import datetime
import fnmatch
import functools
import json
import math
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ... import __version__
from ...config import differences, encode, flat
from ...config.documents import NAME
from ...training import Classification, Config, Experiment, NonFiniteLossError, read_log, replace
from ...training.config import from_document
from ...training.run_folder import MARK, stored_document
from .claim import Claim, Size

Say = Callable[[str], None]
Row = dict[str, Any]

POINTS = 600  # two-dimensional features kept for the picture


def reproduce(
    claim: Claim,
    size: Size = "laptop",
    *,
    seeds: int = 3,
    results: str | os.PathLike[str] = "results",
    runs: str | os.PathLike[str] = "runs/reproduce",
    threads: int = 0,
    only: str = "*",
    say: Say = print,
) -> list[Row]:
    """All rows of the claim at this size, running what is missing.

    The order is by seed, then by arm, so that what there is at any moment is balanced. A run that was killed resumes from its
    checkpoint; a run that has a row with the same setting is not run again. Hyperparameters come from ``results/<id>-tuning.jsonl``,
    which is filled first: measured on a held-out part of the training set, one seed, the same grid for every arm. ``only`` is a
    pattern such as ``CNN-6/*`` of the arms to run.
    """
    if seeds < 1:
        raise ValueError(f"seeds must be an integer ≥ 1, got {seeds}")
    path, folder = results_file(claim, results), pathlib.Path(runs) / claim.id / size
    every = claim.configs(size)
    arms = {name: replace(every[name], threads=threads, pictures=False) for name in fnmatch.filter(every, only)}
    if not arms:
        raise ValueError(f"only must match one of {', '.join(every)}, got {only!r}")
    choices = tune(claim, arms, results, folder, say) if size == "laptop" and claim.tuning is not None else {}
    for seed in range(seeds):
        for name, config in arms.items():
            tuned = claim.tuning.grid[choices[name]](config) if claim.tuning is not None and choices else config
            chosen = replace(tuned, seed=seed)
            if any(_same(row, size, name, chosen) for row in read_rows(path)):
                continue
            row = run_one(chosen, folder / name / str(seed))
            append_row(path, {"arm": name, "seed": seed, "size": size, "choice": choices.get(name), **row})
            say(
                f"{claim.id} {name}, seed {seed}: {_shown(claim, row['metrics']) or 'diverged'} ({row['seconds']:.0f} s)"
            )
    return [row for row in recorded(claim, results, size) if row["arm"] in arms]


def tune(
    claim: Claim, arms: dict[str, Config], results: str | os.PathLike[str], folder: pathlib.Path, say: Say
) -> dict[str, str]:
    """The choice of each arm: the entry of the grid with the best monitored measure on held-out training samples."""
    assert claim.tuning is not None
    path = results_file(claim, results, "-tuning")
    for entry, change in claim.tuning.grid.items():
        for name, config in arms.items():
            short = replace(change(claim.tuning.short(config)), samples__validation=0.1)
            if any(row["entry"] == entry and _same(row, "laptop", name, short) for row in read_rows(path)):
                continue
            row = run_one(short, folder / "tuning" / entry / name)
            score = (
                None
                if row["diverged"]
                else row["metrics"][config.monitor.lstrip("-")] * (-1 if config.monitor.startswith("-") else 1)
            )
            kept = {key: row[key] for key in ("setting", "seconds", "threads", "date", "version")}
            append_row(
                path, {"arm": name, "entry": entry, "size": "laptop", "seed": config.seed, "score": score, **kept}
            )
            say(
                f"{claim.id} tuning {name}, {entry}: {'diverged' if score is None else f'{score:.4g}'} ({row['seconds']:.0f} s)"
            )
    return best_entries(claim, read_rows(path))


def best_entries(claim: Claim, rows: list[Row]) -> dict[str, str]:
    """For each arm the entry of the grid with the largest score; of equals the first of the grid. A run that diverged is the worst."""
    assert claim.tuning is not None
    order = list(claim.tuning.grid)
    scores: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["entry"] in order:
            scores.setdefault(row["arm"], {})[row["entry"]] = -math.inf if row["score"] is None else row["score"]
    return {arm: max(sorted(found, key=order.index), key=found.__getitem__) for arm, found in scores.items()}


def run_one(config: Config, folder: pathlib.Path) -> Row:
    """Train and measure one config; what its row says beside whose it is. A loss that is not finite is a result: no metrics."""
    start = time.perf_counter()
    experiment = Experiment(config, folder, fresh=(folder / MARK).exists() and not _resumable(folder, config))
    diverged = False
    try:
        metrics = experiment.run()
    except NonFiniteLossError:
        metrics, diverged = {}, True
    curve = _curve(folder, config)
    metrics = {} if diverged else {**metrics, **_derived(curve, config)}
    row = {
        # what is not a number (angles of features that are all the same) cannot be averaged, nor written as JSON
        "metrics": {
            key: _short(value)
            for key, value in metrics.items()
            if not key.startswith("energy/") and math.isfinite(value)
        },
        "diverged": diverged,
        "curve": curve,
        "setting": setting(config),
        "seconds": round(time.perf_counter() - start, 1),
        "threads": torch.get_num_threads(),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "version": __version__,
    }
    return row if diverged else row | _points(experiment)


def setting(config: Config) -> dict[str, Any]:
    """The knobs that are not at their defaults, by their path; not the name, the seed, the number of threads and the pictures."""
    usual, chosen = _usual(), flat(encode(config, defaults=True))
    left_out = ("name", "seed", "threads", "pictures", NAME)
    return {k: v for k, v in chosen.items() if k not in left_out and (k not in usual or usual[k] != v)}


@functools.cache
def _usual() -> dict[str, Any]:
    return flat(encode(Config(), defaults=True))


def results_file(claim: Claim, results: str | os.PathLike[str], suffix: str = "") -> pathlib.Path:
    """Where the rows of a claim are."""
    return pathlib.Path(results) / f"{claim.id}{suffix}.jsonl"


def read_rows(path: str | os.PathLike[str]) -> list[Row]:
    """The rows of a file, none if it is not there; a last line that a kill cut short is left out."""
    file = pathlib.Path(path)
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n")[:-1]] if file.exists() else []


def append_row(path: str | os.PathLike[str], row: Row) -> None:
    """One line at the end of the file, on the disk when this returns; what a kill left of a line is cut off first."""
    file = pathlib.Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "ab+") as stream:
        stream.seek(0)
        whole = stream.read().rfind(b"\n") + 1
        stream.truncate(whole)
        stream.write((json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n").encode())
        stream.flush()
        os.fsync(stream.fileno())


def recorded(claim: Claim, results: str | os.PathLike[str], size: Size = "laptop") -> list[Row]:
    """The rows that count, by arm and seed: those with the setting the claim has now; a repeated run counts once, the last."""
    arms, grid = claim.arms(size), {} if claim.tuning is None else claim.tuning.grid
    found = [row for row in read_rows(results_file(claim, results)) if row["size"] == size and row["arm"] in arms]
    found = [row for row in found if row["choice"] is None or row["choice"] in grid]
    settings = {}
    for arm, choice in dict.fromkeys((row["arm"], row["choice"]) for row in found):
        settings[arm, choice] = _as_stored(arms[arm] if choice is None else grid[choice](arms[arm]))
    rows = {(row["arm"], row["seed"]): row for row in found if row["setting"] == settings[row["arm"], row["choice"]]}
    order = list(arms)
    return sorted(rows.values(), key=lambda row: (order.index(row["arm"]), row["seed"]))


def superseded(claim: Claim, results: str | os.PathLike[str], size: Size = "laptop") -> list[Row]:
    """The rows that do not count: of settings the claim had before; of each arm and seed those of the last such setting."""
    counted = {(row["arm"], row["seed"]): row["setting"] for row in recorded(claim, results, size)}
    rows: dict[tuple[str, int], Row] = {}
    for row in read_rows(results_file(claim, results)):
        if row["size"] == size and counted.get((row["arm"], row["seed"])) != row["setting"]:
            rows[row["arm"], row["seed"]] = row
    last = {row["arm"]: row["setting"] for row in rows.values()}
    order = list(dict.fromkeys(arm for arm, _ in rows))
    kept = [row for row in rows.values() if row["setting"] == last[row["arm"]]]
    return sorted(kept, key=lambda row: (order.index(row["arm"]), row["seed"]))


def _same(row: Row, size: str, arm: str, config: Config) -> bool:
    whose = (row["size"], row["arm"], row["seed"]) == (size, arm, config.seed)
    return whose and bool(row["setting"] == _as_stored(config))


def _as_stored(config: Config) -> dict[str, Any]:
    """The setting as a row has it: tuples are lists."""
    stored: dict[str, Any] = json.loads(json.dumps(setting(config)))
    return stored


def _resumable(folder: pathlib.Path, config: Config) -> bool:
    try:
        return not differences(from_document(stored_document(folder)), config)
    except ValueError:  # a run of an earlier version, whose settings have other names
        return False


def _curve(folder: pathlib.Path, config: Config) -> dict[str, list[float]]:
    """The monitored measure and the mean energy of the hidden layers at every evaluation."""
    monitor = config.monitor.lstrip("-")
    rows = [row for row in read_log(folder) if monitor in row]
    curve = {"step": [row["step"] for row in rows], monitor: [_short(row[monitor]) for row in rows]}
    energies = [list(_hidden(row)) for row in rows]
    if energies and all(energies):
        curve["energy"] = [_short(sum(values) / len(values)) for values in energies]
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
    """The first features of the measured set where they are two-dimensional, of the first seed."""
    task = experiment.task
    if experiment.config.seed != 0 or not isinstance(task, Classification) or task.summary()["features"] != 2:
        return {}
    index = torch.arange(min(POINTS, len(task.measured_samples)))
    images, labels = task.measured_samples.batch(index)
    task.eval()
    with torch.no_grad():
        features = task.embed_batch(images).float().cpu()
    rounded = [[round(v, 3) for v in point] for point in features.tolist()]
    return {"points": {"features": rounded, "labels": labels.tolist()}}


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def _shown(claim: Claim, metrics: dict[str, float]) -> str:
    return ", ".join(f"{key} {metrics[key]:.4g}" for key in claim.metrics if key in metrics)
