import json

import torch

from hypersphere.config import call
from hypersphere.training import load_weights, replace
from studies.liu2020.arms import Training
from studies.liu2020.distillation import TeacherStudent
from studies.liu2020.training_run import open_experiment
from tests.training.tasks.test_distillation import STUDENT, TEACHER


def marked(experiment, folder, value=1.0):
    """A measure that returns the feature size of the experiment and a given value."""
    return {"features": float(experiment.task.summary()["features"]), "value": value}


HELD = {"samples.validation": 0.2}
ARM = TeacherStudent(
    STUDENT, (call(marked),), HELD, (call(marked),), teacher=Training(TEACHER, (call(marked, value=2.0),), HELD)
)


def test_both_are_trained_and_measured_and_the_student_starts_from_its_teacher(tmp_path):
    arm = TeacherStudent(replace(STUDENT, {"optimizer.lr": 0.0}, steps=1), ARM.measures, teacher=ARM.teacher)
    row = arm.make_row(3, tmp_path, threads=1)
    metrics = row["metrics"]
    assert (metrics["features"], metrics["value"]) == (32.0, 1.0)
    assert (metrics["teacher_features"], metrics["teacher_value"]) == (8.0, 2.0)
    assert metrics["rank1"] > 0
    assert metrics["teacher_rank1"] > 0
    theirs, own = load_weights(tmp_path / "teacher"), load_weights(tmp_path / "student")
    same = [name for name in own if name in theirs and theirs[name].shape == own[name].shape]
    assert len(same) > 8
    assert all(torch.equal(own[name], theirs[name]) for name in same if "classifier" not in name)
    assert arm.matches(row)


def test_a_row_is_of_the_settings_of_both():
    other = TeacherStudent(STUDENT, ARM.measures, teacher=Training(replace(TEACHER, steps=4), ARM.teacher.measures))
    row = {"setting": ARM.list_settings()}
    assert ARM.matches(row)
    assert not other.matches(row)
    assert ARM.list_settings()["teacher.steps"] == 3
    assert "task.teacher" not in ARM.list_settings(defaults=False)


def test_both_are_held_out():
    held = ARM.with_validation(ARM.config)
    assert held.config.samples.validation == held.teacher.config.samples.validation == 0.2
    assert held.measures == ARM.validation_measures
    assert held.teacher.measures == ()


def test_goes_on_with_the_teacher_there_is(tmp_path):
    open_experiment(tmp_path / "teacher", replace(TEACHER, seed=0)).run()
    ARM.run(0, tmp_path, 1)
    events = [json.loads(line)["event"] for line in (tmp_path / "teacher" / "events.jsonl").read_text().splitlines()]
    assert events.count("start") == 1
    assert "resume" in events


def test_a_teacher_that_diverges_is_a_row_without_metrics(tmp_path):
    arm = TeacherStudent(STUDENT, teacher=Training(replace(TEACHER, {"optimizer.lr": 1e30}, steps=10)))
    row = arm.make_row(0, tmp_path, threads=1)
    assert row["diverged"]
    assert row["metrics"] == {}
    assert not (tmp_path / "student").exists()


def test_settings_of_the_teacher_are_changed_by_their_prefix():
    arm = ARM.with_changes(["steps=7", "teacher.steps=9", "teacher.optimizer.lr=0.5"])
    assert (arm.config.steps, arm.teacher.config.steps) == (7, 9)
    assert (arm.config.optimizer.get("lr"), arm.teacher.config.optimizer.get("lr")) == (1e-2, 0.5)
    assert arm.measures == ARM.measures
    assert arm.validation_changes == ARM.validation_changes
    assert arm.validation_measures == ARM.validation_measures
    assert arm.teacher.measures == ARM.teacher.measures
