"""Recorded rows: one line a finished run in ``results/<id>.jsonl``, and which of them count."""

import json
import os
import pathlib
from collections.abc import Mapping

from .arms import Arm, Row, Training
from .claim import Claim, Size
from .effects import Values


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
    """The rows that count, by arm and seed: those with the setting the claim has now; a repeated run counts once, the last.

    A choice that is text is as choices were written before they could be applied.
    """
    arms = claim.sized(size)
    found = [row for row in read_rows(results_file(claim, results)) if row["size"] == size and row["arm"] in arms]
    rows = {}
    for row in found:
        if not isinstance(row["choice"], str) and chosen_arm(claim, arms[row["arm"]], row["choice"]).made(row):
            rows[row["arm"], row["seed"]] = row
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


def measured(rows: list[Row]) -> dict[str, dict[str, Values]]:
    """``values[arm][metric][seed]``; an arm whose runs all diverged has no metrics."""
    values: dict[str, dict[str, dict[int, float]]] = {row["arm"]: {} for row in rows}
    for row in rows:
        for key, value in row["metrics"].items():
            values[row["arm"]].setdefault(key, {})[row["seed"]] = value
    return values  # type: ignore[return-value]
