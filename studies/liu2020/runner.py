"""Run a claim: every arm with every seed, once, resumable, one row per finished run in ``rows/<id>.jsonl``."""

import fnmatch
import itertools
import math
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence

from .arms import Arm, Row, Training
from .claim import Claim, Size
from .rows import FOLDER, append_row, chosen_arm, known_score, read_rows, recorded, results_file, row_of, trial
from .tuning import Choice, shown_changes, shown_choice

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
    """All rows of the claim at this size, running what is missing.

    The order is by seed, then by arm, so that what there is at any moment is balanced. A run that was killed resumes from its
    checkpoint; a run that has a row with the same setting is not run again. Hyperparameters come from ``rows/<id>-tuning.jsonl``,
    which is filled first: measured on a held-out part of the training set, one seed, the same grid for every arm. ``seeds`` is
    the claim's own number if it is left out. ``only`` is a pattern such as ``CNN-6/*`` of the arms to run.

    >>> import tempfile
    >>> from studies.liu2020 import get_claim, reproduce
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = reproduce(get_claim("theory"), seeds=1, only="rotation/cayley", results=folder, runs=folder, say=str)
    >>> [(row["arm"], row["seed"], row["metrics"]["energy_drift"] < 1e-3) for row in rows]
    [('rotation/cayley', 0, True)]
    """
    if seeds is not None and seeds < 1:
        raise ValueError(f"seeds must be an integer ≥ 1, got {seeds}")
    path, folder = results_file(claim, results), pathlib.Path(runs) / claim.id / size
    every = claim.sized(size)
    arms = {name: every[name] for name in fnmatch.filter(every, only)}
    if not arms:
        raise ValueError(f"only must match one of {', '.join(every)}, got {only!r}")
    wanted = {name: claim.seeds_of(name) if seeds is None else seeds for name in arms}
    diverged = True
    while diverged:  # then another choice is the best one that did not
        diverged = False
        choices = tune(claim, arms, results, folder, threads, say) if size == "laptop" else {}
        for seed, name in itertools.product(range(max(wanted.values())), arms):
            chosen = chosen_arm(claim, arms[name], choices.get(name))
            if seed >= wanted[name] or any(row_of(row, size, name, seed, chosen) for row in read_rows(path)):
                continue
            place = ", ".join(filter(None, (str(seed), shown_choice(choices.get(name)))))
            row = chosen.row(seed, folder / name / place, threads)
            append_row(path, {"arm": name, "seed": seed, "size": size, "choice": choices.get(name), **row})
            diverged = diverged or row["diverged"]
            said = _shown(claim, row["metrics"]) or "diverged"
            say(f"{claim.id} {name}, seed {seed}: {said} ({row['seconds']:.0f} s)")
    return [row for row in recorded(claim, results, size) if row["arm"] in arms]


def tune(
    claim: Claim,
    arms: Mapping[str, Arm],
    results: str | os.PathLike[str],
    folder: pathlib.Path,
    threads: int = 0,
    say: Say = print,
) -> dict[str, Choice]:
    """The choice of each arm: what has the best monitored measure on held-out training samples, by :meth:`Tuning.search`.

    A choice whose whole run diverged with some seed is out, as one whose short run did.
    """
    tuning = claim.tuning
    if tuning is None:
        return {}
    path, whole = results_file(claim, results, "-tuning"), read_rows(results_file(claim, results))

    def score(name: str, arm: Training, choice: Choice) -> float:
        known = known_score(claim, name, arm, choice, read_rows(path), whole)
        if known is not None:
            return known
        short, seed = trial(claim, arm, choice), arm.config.seed
        row = short.row(seed, folder / "tuning" / shown_choice(choice) / name, threads)
        monitor = arm.config.monitor
        sign = -1 if monitor.startswith("-") else 1
        found = None if row["diverged"] else sign * row["metrics"][monitor.lstrip("-")]
        kept = {key: row[key] for key in ("setting", "seconds", "cpu_seconds", "threads", "date", "version")}
        append_row(path, {"arm": name, "choice": choice, "size": "laptop", "seed": seed, "score": found, **kept})
        said = "diverged" if found is None else f"{found:.4g}"
        say(f"{claim.id} tuning {name}, {shown_choice(choice)}: {said} ({row['seconds']:.0f} s)")
        return -math.inf if found is None else found

    return {
        name: tuning.search(arm.config, lambda choice, name=name, arm=arm: score(name, arm, choice))  # type: ignore[misc]
        for name, arm in arms.items()
        if isinstance(arm, Training)
    }


def pilot(
    claim: Claim,
    changes: Sequence[str],
    *,
    only: str = "*",
    results: str | os.PathLike[str] = FOLDER / "rows",
    runs: str | os.PathLike[str] = "runs/reproduce",
    threads: int = 0,
    say: Say = print,
) -> list[Row]:
    """One seed of the arms that match, with settings changed by ``key.path=value``, measured on held-out training samples.

    A pilot shows in which regime an effect is large enough to be worth the hours of a grid; it never looks at the test set. Its
    rows are kept in ``rows/<id>-pilot.jsonl``, and what has a row is not run again.

    >>> import tempfile
    >>> from studies.liu2020 import get_claim, pilot
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pilot(get_claim("opt"), ["steps=10"], only="MLP, */SRIP", results=folder, runs=folder, say=str)
    Traceback (most recent call last):
    ...
    ValueError: only must match one of MLP, Xavier/baseline, ... that train, got 'MLP, */SRIP'
    """
    every = {name: arm for name, arm in claim.sized("laptop").items() if isinstance(arm, Training)}
    arms = {name: every[name] for name in fnmatch.filter(every, only)}
    if not arms:
        raise ValueError(f"only must match one of {', '.join(every)} that train, got {only!r}")
    path, folder = results_file(claim, results, "-pilot"), pathlib.Path(runs) / claim.id / "pilot"
    found = []
    for name, arm in arms.items():
        arm = arm.changed(changes)
        changed = arm.held_out(arm.config)
        seed = changed.config.seed
        row = next((row for row in read_rows(path) if row_of(row, "laptop", name, seed, changed)), None)
        if row is None:
            made = changed.row(seed, folder / shown_changes(changes) / name, threads)
            row = {"arm": name, "seed": seed, "size": "laptop", "choice": None, "changes": list(changes), **made}
            append_row(path, row)
        found.append(row)
        said = _shown(claim, row["metrics"]) or "diverged"
        say(f"{claim.id} pilot {name}, {shown_changes(changes)}: {said} ({row['seconds']:.0f} s)")
    return found


def missing(claim: Claim, results: str | os.PathLike[str], size: Size = "laptop") -> int:
    """How many of the claim's own number of runs have no row that counts.

    >>> import tempfile
    >>> from studies.liu2020 import get_claim, missing
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     missing(get_claim("theory"), folder)  # 28 arms with 5 seeds each
    140
    """
    there = {(row["arm"], row["seed"]) for row in recorded(claim, results, size)}
    return sum((name, seed) not in there for name in claim.sized(size) for seed in range(claim.seeds_of(name)))


def _shown(claim: Claim, metrics: Mapping[str, float]) -> str:
    return ", ".join(f"{key} {metrics[key]:.4g}" for key in claim.metrics if key in metrics)
