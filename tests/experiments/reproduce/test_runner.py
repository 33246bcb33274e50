import dataclasses
import json

import pytest

from hypersphere import models
from hypersphere.config import call
from hypersphere.experiments.reproduce import reproduce, results, runner
from hypersphere.training import replace

from .tiny import claim


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Rows, tuning rows and the words of one complete run with two seeds."""
    folder = tmp_path_factory.mktemp("reproduce")
    said = []
    rows = reproduce(claim(), seeds=2, results=folder / "results", runs=folder / "runs", threads=1, say=said.append)
    return folder, rows, runner.read_rows(folder / "results" / "tiny-tuning.jsonl"), said


def test_every_arm_and_seed_has_a_row_in_the_order_of_seeds(finished):
    folder, rows, _, said = finished
    stored = runner.read_rows(folder / "results" / "tiny.jsonl")
    assert [(row["seed"], row["arm"]) for row in stored] == [
        (0, "a/softmax"),
        (0, "b/margin"),
        (1, "a/softmax"),
        (1, "b/margin"),
    ]
    assert sorted(rows, key=lambda row: (row["seed"], row["arm"])) == stored
    assert len(said) == 8
    row = stored[1]
    assert row["setting"]["head.m"] == 2
    assert "seed" not in row["setting"]
    assert row["size"] == "laptop"
    assert row["threads"] == 1
    assert row["seconds"] > 0
    assert row["curve"]["step"] == [0, 2, 4]
    assert len(row["curve"]["energy"]) == 3
    assert row["metrics"]["early"] == row["curve"]["accuracy"][1]
    assert row["metrics"]["energy"] == row["curve"]["energy"][-1]


def test_hyperparameters_are_chosen_on_held_out_samples_with_one_grid_for_all(finished):
    _, rows, tuning, _ = finished
    assert [(row["entry"], row["arm"]) for row in tuning] == [
        (entry, arm) for entry in ("lr × 1", "lr × 0.5") for arm in ("a/softmax", "b/margin")
    ]
    assert all(row["setting"]["samples.validation"] == 0.1 for row in tuning)
    assert all("samples.validation" not in row["setting"] for row in rows)
    for row in rows:
        scores = {entry["entry"]: entry["score"] for entry in tuning if entry["arm"] == row["arm"]}
        assert scores[row["choice"]] == max(scores.values())


def test_what_has_a_row_is_not_run_again(finished, monkeypatch):
    folder, rows, _, _ = finished
    monkeypatch.setattr(runner, "run_one", lambda *_: pytest.fail("ran again"))
    again = reproduce(claim(), seeds=2, results=folder / "results", runs=folder / "other", say=pytest.fail)
    assert again == rows


def test_it_goes_on_after_a_kill_in_the_middle_of_a_run_and_of_a_line(finished, tmp_path, monkeypatch):
    _, rows, _, _ = finished
    places = {"results": tmp_path / "results", "runs": tmp_path / "runs"}
    whole, calls = runner.Experiment._train, []

    def train(self, batch):
        calls.append(self.step)
        if len(calls) == 12:  # 4 tuning runs of 2 steps, then the fourth step of the first arm
            raise KeyboardInterrupt
        whole(self, batch)

    monkeypatch.setattr(runner.Experiment, "_train", train)
    with pytest.raises(KeyboardInterrupt):
        reproduce(claim(), seeds=2, threads=1, say=lambda _: None, **places)
    (tmp_path / "results" / "tiny.jsonl").write_text('{"arm": "a/sof', encoding="utf-8")
    monkeypatch.setattr(runner.Experiment, "_train", whole)
    resumed = reproduce(claim(), seeds=2, threads=1, say=lambda _: None, **places)
    assert [row["metrics"] for row in resumed] == [row["metrics"] for row in rows]
    events = [
        json.loads(line)["event"]
        for line in (tmp_path / "runs/tiny/laptop/a/softmax/0/events.jsonl").read_text().splitlines()
    ]
    assert events == ["start", "resume", "end"]


def test_a_changed_setting_is_run_anew_and_replaces_the_row(finished, tmp_path):
    changed = claim(tuned=False)
    places = {
        "results": tmp_path / "results",
        "runs": tmp_path / "runs",
        "only": "a/*",
        "threads": 1,
        "seeds": 1,
        "say": lambda _: None,
    }
    first = reproduce(changed, **places)
    shorter = dataclasses.replace(
        changed, arms=lambda size: {name: replace(config, steps=2) for name, config in changed.arms(size).items()}
    )
    second = reproduce(shorter, **places)
    assert (first[0]["curve"]["step"], second[0]["curve"]["step"]) == ([0, 2, 4], [0, 2])
    assert len(second) == 1
    assert len(runner.read_rows(tmp_path / "results" / "tiny.jsonl")) == 2


def test_planar_features_are_kept_for_the_picture(tmp_path):
    config = replace(
        claim().configs("laptop")["a/softmax"],
        model=call(models.lsoftmax_mnist_2d, width=0.03125),
        steps=1,
    )
    points = runner.run_one(replace(config, pictures=False), tmp_path / "run")["points"]
    assert len(points["features"]) == len(points["labels"])
    assert len(points["features"][0]) == 2


def test_ties_go_to_the_first_entry_and_unknown_entries_are_ignored():
    rows = [
        {"arm": "a", "entry": entry, "score": score}
        for entry, score in (("lr × 0.5", 1.0), ("lr × 1", 1.0), ("lr × 9", 2.0))
    ]
    assert runner.best_entries(claim(), rows) == {"a": "lr × 1"}


@pytest.mark.parametrize(
    ("changes", "message"), [({"seeds": 0}, "seeds must be"), ({"only": "z*"}, "only must match one of a/softmax")]
)
def test_refuses(changes, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        reproduce(claim(), results=tmp_path, runs=tmp_path, **changes)


def test_rows_of_another_setting_size_or_choice_do_not_count(finished):
    folder, rows, _, _ = finished
    path = folder / "changed" / "tiny.jsonl"
    for change in ({"setting": {"steps": 5}}, {"size": "paper"}, {"arm": "c"}, {"choice": "lr × 7"}, {"seed": 5}):
        runner.append_row(path, {**rows[0], **change})
    assert [row["seed"] for row in runner.recorded(claim(), folder / "changed")] == [5]


def test_a_run_whose_loss_is_not_finite_is_recorded_as_such(tmp_path, monkeypatch):
    def explode(self):
        raise runner.NonFiniteLossError("the loss became nan")

    monkeypatch.setattr(runner.Experiment, "run", explode)
    said = []
    rows = reproduce(claim(), seeds=1, results=tmp_path / "results", runs=tmp_path / "runs", threads=1, say=said.append)
    assert all(row["diverged"] and not row["metrics"] for row in rows)
    assert [row["score"] for row in runner.read_rows(tmp_path / "results" / "tiny-tuning.jsonl")] == [None] * 4
    assert sum("diverged" in line for line in said) == 6
    assert "2 of them diverged" in results.section(claim(), rows)
