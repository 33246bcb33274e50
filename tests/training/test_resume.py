import json
import warnings

import numpy as np
import pytest
import torch

from hypersphere.files import load_tree
from hypersphere.training import Callback, Experiment, Settings
from hypersphere.training.processes import set_random_state
from hypersphere.training.run_folder import describe_differences, normalize_document
from hypersphere.training.trainer import compute_data_digest
from tests.training.own import Squares
from tests.training.runs import own, small

FEW = Settings(steps=3, evaluate_every=3, ema=0.9, threads=1, pictures=False)


def test_a_state_is_everything(tmp_path):
    first = own(FEW, tmp_path / "first")
    first.run()
    second = own(FEW.replace(seed=0), tmp_path / "second")
    state = first.get_state()
    assert second.restore(state) == state["log"]
    assert (second.step, second.best, second.measured) == (3, first.best, first.measured)
    for one, other in zip(first.task.parameters(), second.task.parameters(), strict=True):
        assert torch.equal(one, other)
    drawn = []
    for _ in range(2):
        set_random_state(state["random"][0])
        normal = np.random.normal(size=3)  # noqa: NPY002
        drawn.append([*torch.rand(2).tolist(), *normal])
    assert drawn[0] == drawn[1]


def test_another_number_of_callbacks_is_refused(tmp_path):
    trainer = own(FEW, tmp_path)
    state = trainer.get_state()
    trainer.callbacks.append(Callback())
    with pytest.raises(ValueError, match="callbacks must be those of the stored run, which has 0, got 1"):
        trainer.restore(state)


def test_another_number_of_processes_draws_anew_the_same_way(tmp_path):
    trainer = own(FEW, tmp_path)
    state = trainer.get_state()
    drawn = []
    for _ in range(2):
        trainer.restore(state | {"random": state["random"] * 2})
        drawn.append(torch.rand(2))
    assert torch.equal(*drawn)


def test_the_scale_of_fp16_is_kept(tmp_path):
    trainer = own(FEW, tmp_path)
    trainer.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    state = trainer.get_state()
    trainer.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    trainer.restore(state)
    assert trainer.accelerator.scaler.state_dict()["scale"] == 8.0


TWO_STEPS = Settings(steps=2, evaluate_every=2, checkpoint_every=1, threads=1, pictures=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("conditions") / "run"
    Experiment(
        small({"samples.measured": 40}, steps=2, evaluate_every=2, checkpoint_every=2, pictures=False), folder
    ).run()
    return folder


def test_settings_edited_by_hand_are_named_and_refused(run):
    text = (run / "config.json").read_text()
    document = json.loads(text)
    document["optimizer"]["lr"] = 0.07
    (run / "config.json").write_text(json.dumps(document))
    try:
        with pytest.raises(ValueError, match=r"other settings \(optimizer.lr is 0.05 there, 0.07 here\)"):
            Experiment.resume(run).run()
    finally:
        (run / "config.json").write_text(text)
    assert Experiment.resume(run).run()["accuracy"] >= 0  # resumes with the original settings


def test_a_new_run_starts_from_its_checkpoint_when_asked(run, tmp_path):
    before = (run / "last.safetensors").read_bytes()
    forked = Experiment.fork(run, tmp_path / "new", ["optimizer.lr=0.01", "steps=4", "evaluate_every=4"])
    seen = []
    forked.run(lambda step, row: seen.append(step))
    assert min(step for step in seen if step) >= 2
    assert forked.step == 4
    assert load_tree(tmp_path / "new" / "last.safetensors")["conditions"]["settings"]["optimizer.lr"] == 0.01
    assert (run / "last.safetensors").read_bytes() == before  # the other run is not changed
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "config.json").write_text((run / "config.json").read_text())
    with pytest.raises(ValueError, match="has no checkpoint to start from"):
        Experiment.fork(tmp_path / "empty", tmp_path / "other", [])


def test_other_data_is_refused(tmp_path):
    own(TWO_STEPS, tmp_path).run()
    with pytest.raises(ValueError, match=r"other training data \(digest \w{12} there, \w{12} here\)"):
        own(TWO_STEPS, tmp_path, train=Squares(seed=5)).run()


def test_other_threads_are_said(tmp_path):
    trainer = own(TWO_STEPS, tmp_path)
    with pytest.warns(UserWarning, match="made with 7 threads and goes on with 1"):
        trainer.check_conditions({**trainer.conditions, "threads": 7})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer.check_conditions(trainer.conditions)


def test_what_changes_nothing_may_differ():
    assert normalize_document({"steps": 3, "timeout": 5, "head": {"call": "A", "m": 1.0}}) == {
        "steps": 3,
        "head": "A",
        "head.m": 1.0,
    }
    assert describe_differences({"a": 1}, {"a": 1}) == ""
    assert describe_differences({"a": 1}, {"a": True, "b": None}) == "a is 1 there, True here"


def test_the_digest_is_of_labels_and_pixels(tmp_path):
    one, same, other = (own(TWO_STEPS, tmp_path, train=Squares(seed=s)).task for s in (1, 1, 2))
    assert compute_data_digest(one) == compute_data_digest(same) != compute_data_digest(other)
    assert compute_data_digest(torch.nn.Linear(1, 1)) is None
