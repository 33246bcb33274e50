import dataclasses
import json

import pytest

from hypersphere.training import replace
from studies.liu2020 import Training, count_missing, markdown_page, reproduce, rows, run_pilot, runner, training_run

from .tiny import claim


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return the rows, the tuning rows and the messages of one complete run with two seeds."""
    folder = tmp_path_factory.mktemp("reproduce")
    said = []
    found = reproduce(claim(), seeds=2, results=folder / "results", runs=folder / "runs", threads=1, say=said.append)
    return folder, found, rows.read_rows(folder / "results" / "tiny-tuning.jsonl"), said


def test_every_arm_and_seed_has_a_row_in_the_order_of_seeds(finished):
    folder, found, tuning, said = finished
    stored = rows.read_rows(folder / "results" / "tiny.jsonl")
    assert [(row["seed"], row["arm"]) for row in stored] == [
        (0, "a/softmax"),
        (0, "b/margin"),
        (1, "a/softmax"),
        (1, "b/margin"),
    ]
    assert sorted(found, key=lambda row: (row["seed"], row["arm"])) == stored
    assert len(said) == len(tuning) + 4
    row = stored[1]
    assert row["setting"]["head.m"] == 2
    assert "seed" not in row["setting"]
    assert (row["size"], row["threads"]) == ("laptop", 1)
    assert row["seconds"] > 0
    assert row["curve"]["step"] == [0, 2, 4]
    assert len(row["curve"]["energy"]) == 3
    assert row["metrics"]["early"] == row["curve"]["accuracy"][1]
    assert row["metrics"]["energy"] == row["curve"]["energy"][-1]


def test_hyperparameters_are_chosen_on_held_out_samples_with_one_grid_for_all(finished):
    _, found, tuning, _ = finished
    for arm in ("a/softmax", "b/margin"):
        assert {0.5, 1.0, 2.0} <= {row["choice"]["lr"] for row in tuning if row["arm"] == arm}
    assert all(row["setting"]["samples.validation"] == 0.1 for row in tuning)
    assert all("samples.validation" not in row["setting"] for row in found)
    for row in found:
        scores = {entry["choice"]["lr"]: entry["score"] for entry in tuning if entry["arm"] == row["arm"]}
        assert scores[row["choice"]["lr"]] == max(scores.values())


def test_what_has_a_row_is_not_run_again(finished, monkeypatch):
    folder, found, _, _ = finished
    monkeypatch.setattr(Training, "run", lambda *_: pytest.fail("ran again"))
    again = reproduce(claim(), seeds=2, results=folder / "results", runs=folder / "other", say=pytest.fail)
    assert again == found
    assert count_missing(claim(), folder / "results") == 2  # the third seed of two arms


def test_an_arm_that_is_to_have_fewer_seeds_has_them(finished, monkeypatch):
    folder, found, _, _ = finished
    once = dataclasses.replace(claim(), seeds=2, fewer={"b/*": 1, "c/*": 0})
    assert count_missing(dataclasses.replace(once, seeds=3), folder / "results") == 1
    monkeypatch.setattr(Training, "run", lambda *_: {"metrics": {"accuracy": 7.0}})
    rest = [row for row in found if (row["arm"], row["seed"]) != ("b/margin", 1)]
    for row in rows.read_rows(folder / "results" / "tiny-tuning.jsonl"):
        rows.append_row(folder / "other" / "tiny-tuning.jsonl", row)
    for row in rest[1:]:
        rows.append_row(folder / "other" / "tiny.jsonl", row)
    again = reproduce(once, results=folder / "other", runs=folder / "runs", say=lambda _: None)
    assert [(row["arm"], row["seed"]) for row in again] == [("a/softmax", 0), ("a/softmax", 1), ("b/margin", 0)]
    assert again[0]["metrics"] == {"accuracy": 7.0}


def test_it_goes_on_after_a_kill_in_the_middle_of_a_run_and_of_a_line(finished, tmp_path, monkeypatch):
    _, found, tuning, _ = finished
    places = {"results": tmp_path / "results", "runs": tmp_path / "runs"}
    whole, calls = training_run.Experiment._train, []

    def train(self, batch):
        calls.append(self.step)
        if len(calls) == 2 * len(tuning) + 4:  # after the tuning runs of 2 steps, in the fourth step of the first arm
            raise KeyboardInterrupt
        whole(self, batch)

    monkeypatch.setattr(training_run.Experiment, "_train", train)
    with pytest.raises(KeyboardInterrupt):
        reproduce(claim(), seeds=2, threads=1, say=lambda _: None, **places)
    (tmp_path / "results" / "tiny.jsonl").write_text('{"arm": "a/sof', encoding="utf-8")
    monkeypatch.setattr(training_run.Experiment, "_train", whole)
    resumed = reproduce(claim(), seeds=2, threads=1, say=lambda _: None, **places)
    assert [row["metrics"] for row in resumed] == [row["metrics"] for row in found]
    (log,) = (tmp_path / "runs/tiny/laptop/a/softmax").glob("0*/events.jsonl")
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    assert events == ["start", "resume", "end"]


def test_a_changed_setting_is_run_anew_and_replaces_the_row(tmp_path):
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
        changed,
        arms=lambda size: {name: Training(replace(arm.config, steps=2)) for name, arm in changed.arms(size).items()},
    )
    second = reproduce(shorter, **places)
    assert (first[0]["curve"]["step"], second[0]["curve"]["step"]) == ([0, 2, 4], [0, 2])
    assert len(second) == 1
    assert len(rows.read_rows(tmp_path / "results" / "tiny.jsonl")) == 2


@pytest.mark.parametrize(
    ("changes", "message"), [({"seeds": 0}, "seeds must be"), ({"only": "z*"}, "only must match one of a/softmax")]
)
def test_refuses(changes, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        reproduce(claim(), results=tmp_path, runs=tmp_path, **changes)


def test_a_run_whose_loss_is_not_finite_is_recorded_as_such(tmp_path, monkeypatch):
    def explode(self):
        raise training_run.NonFiniteLossError("the loss became nan")

    monkeypatch.setattr(training_run.Experiment, "run", explode)
    said = []
    found = reproduce(
        claim(), seeds=1, results=tmp_path / "results", runs=tmp_path / "runs", threads=1, say=said.append
    )
    assert all(row["diverged"] and not row["metrics"] for row in found)
    scores = [row["score"] for row in rows.read_rows(tmp_path / "results" / "tiny-tuning.jsonl")]
    assert scores == [None] * len(scores)
    assert sum("diverged" in line for line in said) == len(scores) + 2
    assert "2 of them diverged" in markdown_page.format_claim(claim(), found)
    assert runner.count_missing(claim(), tmp_path / "results") == 4


def test_a_choice_that_diverges_in_a_whole_run_gives_way_to_the_next_best(tmp_path, monkeypatch):
    """A learning rate can work in short runs and diverge in a full run. Then all seeds of the arm use another one."""
    run, whole = training_run.Experiment.run, []

    def fragile(self):
        if self.config.name == "b" and not self.config.samples.validation:
            whole.append((self.config.seed, self.config.optimizer.get("lr")))
            if len(whole) == 2:
                raise training_run.NonFiniteLossError("the loss became nan")
        return run(self)

    named = dataclasses.replace(
        claim(),
        arms=lambda size: {
            name: Training(replace(arm.config, name=name[0])) for name, arm in claim().arms(size).items()
        },
    )
    monkeypatch.setattr(training_run.Experiment, "run", fragile)
    places = {"results": tmp_path / "results", "runs": tmp_path / "runs", "threads": 1, "say": lambda _: None}
    found = reproduce(named, seeds=2, only="b/*", **places)
    (first, at_first), (_, again), *later = whole
    assert (first, at_first) == (0, again)
    assert [seed for seed, _ in later] == [0, 1]
    assert {rate for _, rate in later}.isdisjoint({at_first})
    assert [row["setting"]["optimizer.lr"] for row in found] == [rate for _, rate in later]
    assert not any(row["diverged"] for row in found)
    assert len(rows.read_rows(tmp_path / "results" / "tiny.jsonl")) == 4


def test_a_pilot_changes_settings_looks_at_held_out_samples_and_is_kept(tmp_path, monkeypatch):
    places = {"results": tmp_path / "results", "runs": tmp_path / "runs", "threads": 1}
    said = []
    found = run_pilot(claim(), ["steps=2", "optimizer.lr=0.05"], only="b/*", say=said.append, **places)
    assert [(row["arm"], row["seed"], row["changes"]) for row in found] == [
        ("b/margin", 0, ["steps=2", "optimizer.lr=0.05"])
    ]
    assert found[0]["setting"]["samples.validation"] == 0.1
    assert (found[0]["setting"]["steps"], found[0]["setting"]["optimizer.lr"]) == (2, 0.05)
    assert rows.read_rows(tmp_path / "results" / "tiny-pilot.jsonl") == found
    assert rows.select_rows(claim(), tmp_path / "results") == []  # pilots do not count for any check
    assert said[0].startswith("tiny pilot b/margin, steps=2 optimizer.lr=0.05: accuracy")
    monkeypatch.setattr(Training, "run", lambda *_: pytest.fail("ran again"))
    assert run_pilot(claim(), ["steps=2", "optimizer.lr=0.05"], only="b/*", say=str, **places) == found


def test_a_pilot_of_no_arm_or_of_an_unknown_setting_is_refused(tmp_path):
    places = {"results": tmp_path / "results", "runs": tmp_path / "runs"}
    with pytest.raises(ValueError, match="only must match one of a/softmax, b/margin that train, got 'c'"):
        run_pilot(claim(), [], only="c", **places)
    with pytest.raises(ValueError, match="there is no key step"):
        run_pilot(claim(), ["step=2"], **places)
    assert not list(tmp_path.iterdir())
