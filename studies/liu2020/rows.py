"""Recorded rows: one line per finished run in ``rows/<id>.jsonl``, and which of them count."""

import functools
import json
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from .arms import Arm, Row, Training
from .claim import Claim, Size
from .effects import Values
from .tuning import Choice

FOLDER = pathlib.Path(__file__).parent
"""The folder of this study; its rows are in ``rows``."""

MOVED_MODULES = {
    "hypersphere.experiments.reproduce.": "studies.liu2020.claims.",
    "studies.liu2020.claims.robustness_claim:": "studies.liu2020.claims.robustness:",
}
"""Former beginnings of the names of functions in recorded settings, and what they are now; applied in this order."""


def results_file(claim: Claim, results: str | os.PathLike[str], suffix: str = "") -> pathlib.Path:
    """Where the rows of a claim are."""
    return pathlib.Path(results) / f"{claim.id}{suffix}.jsonl"


def read_rows(path: str | os.PathLike[str]) -> list[Row]:
    """Return the rows of a file; none if it does not exist. An incomplete last line is ignored.

    Names of functions that moved since a row was written are replaced by the present ones.
    """
    file = pathlib.Path(path)
    if not file.exists():
        return []
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n")[:-1]]
    for row in rows:
        if "setting" in row:
            row["setting"] = {key: present_name(value) for key, value in row["setting"].items()}
    return rows


def present_name(value: Any) -> Any:
    """Return the present name of a function that a recorded setting names; other values are returned unchanged.

    >>> present_name("hypersphere.experiments.reproduce.robustness_claim:withstood")
    'studies.liu2020.claims.robustness:withstood'
    """
    if isinstance(value, str) and ":" in value:
        for former, present in MOVED_MODULES.items():
            if value.startswith(former):
                value = present + value.removeprefix(former)
    return value


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
    """The rows that count, by arm and seed: those with the setting and the choice the claim has now; of repeated runs the last.

    A choice that is text is as choices were written before they could be applied. While an arm has not finished choosing, any
    choice counts.
    """
    files = [results_file(claim, results, suffix) for suffix in ("", "-tuning")]
    return list(_recorded(claim, os.fspath(results), size, tuple(map(_version, files))))


def _version(file: pathlib.Path) -> tuple[int, int] | None:
    """What changes when a row is appended to a file; None if there is no file."""
    return (file.stat().st_mtime_ns, file.stat().st_size) if file.exists() else None


@functools.lru_cache(maxsize=64)
def _recorded(claim: Claim, results: str, size: Size, versions: tuple[tuple[int, int] | None, ...]) -> tuple[Row, ...]:
    """The rows that count. They are kept while the files stay as they are: comparing settings takes seconds per claim."""
    arms = claim.sized(size)
    found = [row for row in read_rows(results_file(claim, results)) if row["size"] == size and row["arm"] in arms]
    choices = present_choices(claim, arms, results) if size == "laptop" else {}
    rows: dict[tuple[str, int], Row] = {}
    chosen: dict[tuple[str, str], Arm] = {}
    for row in found:
        name, choice = row["arm"], row["choice"]
        if isinstance(choice, str) or choices.get(name, choice) != choice:
            continue
        which = name, str(choice)
        if which not in chosen:  # its setting takes a while to write out
            chosen[which] = chosen_arm(claim, arms[name], choice)
        if chosen[which].made(row):
            rows[name, row["seed"]] = row
    order = list(arms)
    return tuple(sorted(rows.values(), key=lambda row: (order.index(row["arm"]), row["seed"])))


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


def chosen_arm(claim: Claim, arm: Arm, choice: Mapping[str, float] | None) -> Arm:
    """The arm with the factors that were chosen for it."""
    if choice is None or claim.tuning is None or not isinstance(arm, Training):
        return arm
    return arm.with_config(claim.tuning.applied(arm.config, choice))


def trial(claim: Claim, arm: Arm, choice: Mapping[str, float]) -> Training:
    """The short run on held-out training samples by which a choice is judged."""
    assert claim.tuning is not None
    assert isinstance(arm, Training)
    return arm.held_out(claim.tuning.short(claim.tuning.applied(arm.config, choice)))


def known_score(
    claim: Claim, name: str, arm: Training, choice: Choice, trials: Sequence[Row], whole: Sequence[Row]
) -> float | None:
    """What ``trials``, rows of tuning, say of a choice: None if it was not tried, −∞ where it diverged, there or in a whole run.

    A trial of an arm of another group with the same settings counts as well.
    """
    chosen = chosen_arm(claim, arm, choice)
    if any(row.get("diverged") and row_of(row, "laptop", name, row["seed"], chosen) for row in whole):
        return -math.inf
    short = trial(claim, arm, choice)
    for row in trials:
        same_name = row["arm"].rpartition("/")[2] == name.rpartition("/")[2]
        if same_name and row["seed"] == arm.config.seed and short.made(row):
            return -math.inf if row["score"] is None else float(row["score"])
    return None


def present_choices(claim: Claim, arms: Mapping[str, Arm], results: str | os.PathLike[str]) -> dict[str, Choice]:
    """The choices that the rows of tuning lead to, of the arms that have finished choosing."""
    if claim.tuning is None:
        return {}
    trials, whole = read_rows(results_file(claim, results, "-tuning")), read_rows(results_file(claim, results))
    found = {}
    for name, arm in arms.items():
        if not isinstance(arm, Training):
            continue
        unknown: list[Choice] = []

        def score(choice: Choice, name: str = name, arm: Training = arm, unknown: list[Choice] = unknown) -> float:
            value = known_score(claim, name, arm, choice, trials, whole)
            if value is None:
                unknown.append(choice)
                return -math.inf
            return value

        choice = claim.tuning.search(arm.config, score)
        if not unknown:
            found[name] = choice
    return found


def row_of(row: Row, size: str, arm: str, seed: int, chosen: Arm) -> bool:
    """Whether a row is that of an arm and a seed with the setting of ``chosen``."""
    return (row["size"], row["arm"], row["seed"]) == (size, arm, seed) and chosen.made(row)


def measured(rows: list[Row]) -> dict[str, dict[str, Values]]:
    """``values[arm][metric][seed]``; an arm whose runs all diverged has no metrics."""
    values: dict[str, dict[str, dict[int, float]]] = {row["arm"]: {} for row in rows}
    for row in rows:
        for key, value in row["metrics"].items():
            values[row["arm"]].setdefault(key, {})[row["seed"]] = value
    return values  # type: ignore[return-value]
