import dataclasses
import json

import pytest

from hypersphere.training import replace
from studies.liu2020 import Training, rows

from .tiny import claim


def row(arm="a/softmax", seed=0, choice=None, **changes):
    """Return a row as the claim would write it now."""
    chosen = rows.apply_choice(claim(), claim().arms("laptop")[arm], choice)
    setting = json.loads(json.dumps(chosen.list_settings()))
    found = {"arm": arm, "seed": seed, "size": "laptop", "choice": choice, "metrics": {"accuracy": 50.0 + seed}}
    return {**found, "setting": setting, **changes}


@pytest.fixture
def kept(tmp_path):
    def keep(*found):
        for one in found:
            rows.append_row(tmp_path / "tiny.jsonl", one)
        return tmp_path

    return keep


def test_rows_of_another_setting_size_or_choice_do_not_count(kept):
    wrong = ({"setting": {"steps": 5}}, {"size": "paper"}, {"arm": "c"}, {"choice": {"lr": 7.0}}, {"choice": "lr × 1"})
    folder = kept(*({**row(), **change} for change in wrong), row(seed=5))
    assert [found["seed"] for found in rows.select_rows(claim(), folder)] == [5]


def test_a_chosen_rate_is_part_of_the_setting(kept):
    folder = kept(row(choice={"lr": 2.0}))
    (found,) = rows.select_rows(claim(), folder)
    assert found["setting"]["optimizer.lr"] == 0.2


def test_the_last_of_equal_runs_counts(kept):
    folder = kept(row(), row(metrics={"accuracy": 1.0}), row("b/margin"))
    assert [found["metrics"]["accuracy"] for found in rows.select_rows(claim(), folder)] == [1.0, 50.0]
    assert rows.select_superseded_rows(claim(), folder) == []


def tried(arm="a/softmax", **scores):
    """Yield tuning rows of the tiny claim, one per learning-rate factor and score."""
    for factor, score in scores.items():
        choice = {"lr": float(factor.lstrip("x").replace("_", "."))}
        setting = json.loads(json.dumps(rows.make_trial(claim(), claim().arms("laptop")[arm], choice).list_settings()))
        yield {"arm": arm, "choice": choice, "size": "laptop", "seed": 0, "score": score, "setting": setting}


def test_rows_of_the_choice_that_tuning_leads_to_count_whichever_was_run_last(kept):
    folder = kept(row(choice={"lr": 1.0}), row(choice={"lr": 2.0}), row("b/margin", choice={"lr": 2.0}))
    for one in tried(x0_5=1.0, x1=3.0):
        rows.append_row(folder / "tiny-tuning.jsonl", one)
    assert [r["choice"]["lr"] for r in rows.select_rows(claim(), folder)] == [2.0, 2.0]  # the search is not finished
    for one in tried(x2=2.0):
        rows.append_row(folder / "tiny-tuning.jsonl", one)
    assert [r["choice"]["lr"] for r in rows.select_rows(claim(), folder)] == [1.0, 2.0]
    assert [(r["arm"], r["choice"]["lr"]) for r in rows.select_superseded_rows(claim(), folder)] == [("a/softmax", 2.0)]


def test_a_choice_whose_whole_run_diverged_is_not_the_present_one(kept):
    folder = kept(row(choice={"lr": 0.5}), row(choice={"lr": 1.0}, seed=1, diverged=True, metrics={}))
    for one in tried(x0_5=2.0, x1=3.0, x2=1.0, x0_25=0.0):
        rows.append_row(folder / "tiny-tuning.jsonl", one)
    arms = claim().arms("laptop")
    assert rows.find_choices(claim(), arms, folder) == {"a/softmax": {"lr": 0.5}}
    assert [r["choice"]["lr"] for r in rows.select_rows(claim(), folder)] == [0.5]


def test_rows_of_an_earlier_claim_are_superseded_not_lost(kept):
    folder = kept(row(), row(seed=1))
    shorter = lambda size: {name: Training(replace(arm.config, steps=2)) for name, arm in claim().arms(size).items()}
    changed = dataclasses.replace(claim(), arms=shorter)
    assert rows.select_rows(changed, folder) == []
    assert [found["seed"] for found in rows.select_superseded_rows(changed, folder)] == [0, 1]


def test_a_line_that_a_kill_cut_short_is_left_out_and_then_cut_off(tmp_path):
    path = tmp_path / "tiny.jsonl"
    rows.append_row(path, row())
    with open(path, "a", encoding="utf-8") as stream:
        stream.write('{"arm": "a/sof')
    assert len(rows.read_rows(path)) == 1
    rows.append_row(path, row(seed=1))
    assert [found["seed"] for found in rows.read_rows(path)] == [0, 1]


def test_values_are_by_arm_metric_and_seed():
    assert rows.group_metrics([row(), row(seed=2), row("b/margin", metrics={})]) == {
        "a/softmax": {"accuracy": {0: 50.0, 2: 52.0}},
        "b/margin": {},
    }
