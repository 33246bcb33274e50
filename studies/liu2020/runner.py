"""Run a claim: all arms with all seeds. Each finished run is one row in ``rows/<id>.jsonl``; interrupted runs resume."""

import fnmatch
import itertools
import math
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence

from .arms import Arm, Row, Training
from .claim import Claim, Size
from .rows import (
    FOLDER,
    append_row,
    apply_choice,
    find_score,
    get_rows_path,
    is_row_of,
    make_trial,
    read_rows,
    select_rows,
)
from .tuning import Choice, format_changes, format_choice

Say = Callable[[str], None]


def reproduce(
    claim: Claim,
    size: Size = "laptop",
    *,
    seeds: int | None = None,
    results: str | os.PathLike[str] = FOLDER / "rows",
    runs: str | os.PathLike[str] = "runs/reproduce",
    threads: int = 0,
    only: str = "*",
    say: Say = print,
) -> list[Row]:
    """Run the missing runs of a claim and return all of its rows.

    Runs are ordered by seed, then by arm, so that all arms have nearly the same number of seeds at any time. Hyperparameters are
    tuned first, on validation samples, with one seed and the same grid for every arm; their rows are in ``rows/<id>-tuning.jsonl``.

    Args:
        claim: the claim.
        size: "laptop" for the recorded settings, "paper" for those of Liu (2020).
        seeds: number of seeds per arm; by default the number that the claim sets.
        results: folder of the rows.
        runs: folder of checkpoints.
        threads: CPU threads; 0 keeps torch's default.
        only: pattern of the arms to run, such as ``CNN-6/*``.
        say: receives one line per finished run.

    >>> import tempfile
    >>> from studies.liu2020 import get_claim, reproduce
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = reproduce(get_claim("theory"), seeds=1, only="rotation/cayley", results=folder, runs=folder, say=str)
    >>> [(row["arm"], row["seed"], row["metrics"]["energy_drift"] < 1e-3) for row in rows]
    [('rotation/cayley', 0, True)]
    """
    if seeds is not None and seeds < 1:
        raise ValueError(f"seeds must be an integer ≥ 1, got {seeds}")
    path, folder = get_rows_path(claim, results), pathlib.Path(runs) / claim.id / size
    every = claim.get_arms(size)
    arms = {name: every[name] for name in fnmatch.filter(every, only)}
    if not arms:
        raise ValueError(f"only must match one of {', '.join(every)}, got {only!r}")
    counts = {name: claim.count_seeds(name) if seeds is None else seeds for name in arms}
    diverged = True
    while diverged:  # a choice that diverges is replaced by the next best one, for all seeds
        diverged = False
        choices = tune(claim, arms, results, folder, threads, say) if size == "laptop" else {}
        for seed, name in itertools.product(range(max(counts.values())), arms):
            chosen = apply_choice(claim, arms[name], choices.get(name))
            if seed >= counts[name] or any(is_row_of(row, size, name, seed, chosen) for row in read_rows(path)):
                continue
            run_name = ", ".join(filter(None, (str(seed), format_choice(choices.get(name)))))
            row = chosen.make_row(seed, folder / name / run_name, threads)
            append_row(path, {"arm": name, "seed": seed, "size": size, "choice": choices.get(name), **row})
            diverged = diverged or row["diverged"]
            outcome = _format_metrics(claim, row["metrics"]) or "diverged"
            say(f"{claim.id} {name}, seed {seed}: {outcome} ({row['seconds']:.0f} s)")
    return [row for row in select_rows(claim, results, size) if row["arm"] in arms]


def tune(
    claim: Claim,
    arms: Mapping[str, Arm],
    results: str | os.PathLike[str],
    folder: pathlib.Path,
    threads: int = 0,
    say: Say = print,
) -> dict[str, Choice]:
    """Return the choice of each arm: the factors with the best monitored metric on validation samples (:meth:`Tuning.search`).

    A choice is excluded if its tuning run diverged, or a whole run with any seed.
    """
    tuning = claim.tuning
    if tuning is None:
        return {}
    path, whole = get_rows_path(claim, results, "-tuning"), read_rows(get_rows_path(claim, results))

    def score(name: str, arm: Training, choice: Choice) -> float:
        known = find_score(claim, name, arm, choice, read_rows(path), whole)
        if known is not None:
            return known
        trial, seed = make_trial(claim, arm, choice), arm.config.seed
        row = trial.make_row(seed, folder / "tuning" / format_choice(choice) / name, threads)
        monitor = arm.config.monitor
        sign = -1 if monitor.startswith("-") else 1
        value = None if row["diverged"] else sign * row["metrics"][monitor.lstrip("-")]
        conditions = {key: row[key] for key in ("setting", "seconds", "cpu_seconds", "threads", "date", "version")}
        append_row(path, {"arm": name, "choice": choice, "size": "laptop", "seed": seed, "score": value, **conditions})
        outcome = "diverged" if value is None else f"{value:.4g}"
        say(f"{claim.id} tuning {name}, {format_choice(choice)}: {outcome} ({row['seconds']:.0f} s)")
        return -math.inf if value is None else value

    return {
        name: tuning.search(arm.config, lambda choice, name=name, arm=arm: score(name, arm, choice))  # type: ignore[misc]
        for name, arm in arms.items()
        if isinstance(arm, Training)
    }


def run_pilot(
    claim: Claim,
    changes: Sequence[str],
    *,
    only: str = "*",
    results: str | os.PathLike[str] = FOLDER / "rows",
    runs: str | os.PathLike[str] = "runs/reproduce",
    threads: int = 0,
    say: Say = print,
) -> list[Row]:
    """Run one seed of some arms with changed settings, and evaluate it on validation samples.

    A pilot explores settings without looking at the test set. Its rows are in ``rows/<id>-pilot.jsonl``; recorded pilots are not run again.

    Args:
        claim: the claim.
        changes: changed settings, ``key.path=value``.
        only: pattern of the arms to run.
        results: folder of the rows.
        runs: folder of checkpoints.
        threads: CPU threads; 0 keeps torch's default.
        say: receives one line per run.

    >>> import tempfile
    >>> from studies.liu2020 import get_claim, run_pilot
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run_pilot(get_claim("opt"), ["steps=10"], only="MLP, */SRIP", results=folder, runs=folder, say=str)
    Traceback (most recent call last):
    ...
    ValueError: only must match one of MLP, Xavier/baseline, ... that train, got 'MLP, */SRIP'
    """
    every = {name: arm for name, arm in claim.get_arms("laptop").items() if isinstance(arm, Training)}
    arms = {name: every[name] for name in fnmatch.filter(every, only)}
    if not arms:
        raise ValueError(f"only must match one of {', '.join(every)} that train, got {only!r}")
    path, folder = get_rows_path(claim, results, "-pilot"), pathlib.Path(runs) / claim.id / "pilot"
    found = []
    for name, arm in arms.items():
        arm = arm.with_changes(changes)
        changed = arm.with_validation(arm.config)
        seed = changed.config.seed
        row = next((row for row in read_rows(path) if is_row_of(row, "laptop", name, seed, changed)), None)
        if row is None:
            result = changed.make_row(seed, folder / format_changes(changes) / name, threads)
            row = {"arm": name, "seed": seed, "size": "laptop", "choice": None, "changes": list(changes), **result}
            append_row(path, row)
        found.append(row)
        outcome = _format_metrics(claim, row["metrics"]) or "diverged"
        say(f"{claim.id} pilot {name}, {format_changes(changes)}: {outcome} ({row['seconds']:.0f} s)")
    return found


def count_missing(claim: Claim, results: str | os.PathLike[str], size: Size = "laptop") -> int:
    """Return how many runs of a claim have no valid row.

    >>> import tempfile
    >>> from studies.liu2020 import get_claim, count_missing
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     count_missing(get_claim("theory"), folder)  # 28 arms with 5 seeds each
    140
    """
    recorded = {(row["arm"], row["seed"]) for row in select_rows(claim, results, size)}
    return sum((name, seed) not in recorded for name in claim.get_arms(size) for seed in range(claim.count_seeds(name)))


def _format_metrics(claim: Claim, metrics: Mapping[str, float]) -> str:
    return ", ".join(f"{key} {metrics[key]:.4g}" for key in claim.metrics if key in metrics)
