"""Recorded rows: one line per finished run in ``rows/<id>.jsonl``, and which of them count."""

import functools
import json
import math
import os
import pathlib
from collections.abc import Mapping, Sequence

from .arms import Arm, Row, Training
from .claim import Claim, Size
from .effects import Values
from .tuning import Choice

FOLDER = pathlib.Path(__file__).parent
"""The folder of this study; its rows are in ``rows``."""


def get_rows_path(claim: Claim, results: str | os.PathLike[str], suffix: str = "") -> pathlib.Path:
    """Return the path of the recorded rows of a claim."""
    return pathlib.Path(results) / f"{claim.id}{suffix}.jsonl"


def read_rows(path: str | os.PathLike[str]) -> list[Row]:
    """Return the rows of a file; none if it does not exist. An incomplete last line is ignored."""
    file = pathlib.Path(path)
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n")[:-1]]


def append_row(path: str | os.PathLike[str], row: Row) -> None:
    """Append a row to a file and flush it to disk. An incomplete last line, left by a killed process, is removed first."""
    file = pathlib.Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "ab+") as stream:
        stream.seek(0)
        whole = stream.read().rfind(b"\n") + 1
        stream.truncate(whole)
        stream.write((json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n").encode())
        stream.flush()
        os.fsync(stream.fileno())


def select_rows(claim: Claim, results: str | os.PathLike[str], size: Size = "laptop") -> list[Row]:
    """Return the valid rows, ordered by arm and seed: those with the claim's present settings and choice; the last of repeated runs.

    Until the tuning of an arm is complete, every choice counts. Rows whose choice is text are older and never count.
    """
    files = [get_rows_path(claim, results, suffix) for suffix in ("", "-tuning")]
    return list(_select_rows(claim, os.fspath(results), size, tuple(map(_get_version, files))))


def _get_version(file: pathlib.Path) -> tuple[int, int] | None:
    """Return time and size of a file, which change when a row is appended; None if there is no file."""
    return (file.stat().st_mtime_ns, file.stat().st_size) if file.exists() else None


@functools.lru_cache(maxsize=64)
def _select_rows(
    claim: Claim, results: str, size: Size, versions: tuple[tuple[int, int] | None, ...]
) -> tuple[Row, ...]:
    """Return the valid rows. They are cached until the files change, because comparing settings takes seconds per claim."""
    arms = claim.get_arms(size)
    found = [row for row in read_rows(get_rows_path(claim, results)) if row["size"] == size and row["arm"] in arms]
    choices = find_choices(claim, arms, results) if size == "laptop" else {}
    rows: dict[tuple[str, int], Row] = {}
    chosen: dict[tuple[str, str], Arm] = {}
    for row in found:
        name, choice = row["arm"], row["choice"]
        if isinstance(choice, str) or choices.get(name, choice) != choice:
            continue
        which = name, str(choice)
        if which not in chosen:  # computing its settings is slow
            chosen[which] = apply_choice(claim, arms[name], choice)
        if chosen[which].matches(row):
            rows[name, row["seed"]] = row
    order = list(arms)
    return tuple(sorted(rows.values(), key=lambda row: (order.index(row["arm"]), row["seed"])))


def select_superseded_rows(claim: Claim, results: str | os.PathLike[str], size: Size = "laptop") -> list[Row]:
    """Return the rows of earlier settings of the claim; for each arm those of its most recent earlier setting."""
    counted = {(row["arm"], row["seed"]): row["setting"] for row in select_rows(claim, results, size)}
    rows: dict[tuple[str, int], Row] = {}
    for row in read_rows(get_rows_path(claim, results)):
        if row["size"] == size and counted.get((row["arm"], row["seed"])) != row["setting"]:
            rows[row["arm"], row["seed"]] = row
    last = {row["arm"]: row["setting"] for row in rows.values()}
    order = list(dict.fromkeys(arm for arm, _ in rows))
    kept = [row for row in rows.values() if row["setting"] == last[row["arm"]]]
    return sorted(kept, key=lambda row: (order.index(row["arm"]), row["seed"]))


def apply_choice(claim: Claim, arm: Arm, choice: Mapping[str, float] | None) -> Arm:
    """Return the arm with the chosen factors applied to its settings."""
    if choice is None or claim.tuning is None or not isinstance(arm, Training):
        return arm
    return arm.with_config(claim.tuning.apply(arm.config, choice))


def make_trial(claim: Claim, arm: Arm, choice: Mapping[str, float]) -> Training:
    """Return the tuning run that evaluates a choice on validation samples."""
    assert claim.tuning is not None
    assert isinstance(arm, Training)
    return arm.with_validation(claim.tuning.shorten(claim.tuning.apply(arm.config, choice)))


def find_score(
    claim: Claim, name: str, arm: Training, choice: Choice, trials: Sequence[Row], whole: Sequence[Row]
) -> float | None:
    """Return the recorded score of a choice: None if it was not tried, −∞ if it diverged in tuning or in a whole run.

    ``trials`` are rows of tuning, ``whole`` rows of whole runs. A trial of the same arm in another group counts if its settings are equal.
    """
    chosen = apply_choice(claim, arm, choice)
    if any(row.get("diverged") and is_row_of(row, "laptop", name, row["seed"], chosen) for row in whole):
        return -math.inf
    short = make_trial(claim, arm, choice)
    for row in trials:
        same_name = row["arm"].rpartition("/")[2] == name.rpartition("/")[2]
        if same_name and row["seed"] == arm.config.seed and short.matches(row):
            return -math.inf if row["score"] is None else float(row["score"])
    return None


def find_choices(claim: Claim, arms: Mapping[str, Arm], results: str | os.PathLike[str]) -> dict[str, Choice]:
    """Return the choice of each arm whose tuning is complete, computed from the recorded rows."""
    if claim.tuning is None:
        return {}
    trials, whole = read_rows(get_rows_path(claim, results, "-tuning")), read_rows(get_rows_path(claim, results))
    found = {}
    for name, arm in arms.items():
        if not isinstance(arm, Training):
            continue
        unknown: list[Choice] = []

        def score(choice: Choice, name: str = name, arm: Training = arm, unknown: list[Choice] = unknown) -> float:
            value = find_score(claim, name, arm, choice, trials, whole)
            if value is None:
                unknown.append(choice)
                return -math.inf
            return value

        choice = claim.tuning.search(arm.config, score)
        if not unknown:
            found[name] = choice
    return found


def is_row_of(row: Row, size: str, arm: str, seed: int, chosen: Arm) -> bool:
    """Return whether a row belongs to an arm and a seed and has the settings of ``chosen``."""
    return (row["size"], row["arm"], row["seed"]) == (size, arm, seed) and chosen.matches(row)


def group_metrics(rows: list[Row]) -> dict[str, dict[str, Values]]:
    """Return ``values[arm][metric][seed]``; an arm whose runs all diverged has no metrics."""
    values: dict[str, dict[str, dict[int, float]]] = {row["arm"]: {} for row in rows}
    for row in rows:
        for key, value in row["metrics"].items():
            values[row["arm"]].setdefault(key, {})[row["seed"]] = value
    return values  # type: ignore[return-value]
