import numpy as np
import pytest
import torch

from hypersphere.data import ArraySource, InMemory, PicturePreprocessing, check, open_source
from hypersphere.objectives import CosFace
from hypersphere.recognition.baselines import first_identities
from hypersphere.training.fitting import plan as planning
from hypersphere.training.fitting.division import divide
from hypersphere.training.fitting.plan import (
    load_splits,
    make_plan,
    parse_seconds,
    plan_steps,
    sample_pictures,
    with_steps,
)
from hypersphere.training.fitting.settings import FitSettings, Overrides


@pytest.fixture
def plan():
    draw = np.random.default_rng(0).integers(0, 256, (60, 12, 20), dtype=np.uint8)
    source = open_source((draw, np.arange(10).repeat(6)))

    def make(*texts):
        asked = Overrides(texts)
        return make_plan(source, check(source).to_json(), divide(source, 0.2), asked), asked

    return make


def test_statistics_are_those_of_the_training_pictures(plan):
    made, _ = plan()
    assert (made.preprocessing.size, made.preprocessing.channels) == ((12, 20), 1)
    assert made.preprocessing.mean[0] == pytest.approx(0.5, abs=0.02)
    assert made.preprocessing.std[0] == pytest.approx(0.289, abs=0.01)


def test_a_change_inside_a_choice_is_said(plan):
    made, _ = plan("head.m=0.4", "steps=9")
    said = {choice.key: choice for choice in made.choices}
    assert said["head"].value.startswith(f"{CosFace.__name__}(m=0.4")
    assert said["head"].reason.endswith("(changed by you)")
    assert said["steps"].reason == "you asked for it"


@pytest.mark.parametrize("texts", [("head=ArcFace",), ("head=ArcFace", "head.m=0.3"), ("head=CosFace",)])
def test_another_head_keeps_the_automatic_scale(plan, texts):
    automatic = plan()[0].settings.head.arguments["scale"]
    head = plan(*texts)[0].settings.head
    assert head.arguments["scale"] == automatic
    assert head.arguments.get("m") == (0.3 if len(texts) > 1 else None)
    assert plan(*texts, "head.scale=40")[0].settings.head.arguments["scale"] == 40


def test_a_batch_is_a_block_of_classes(plan):
    sampler = ("sampler=ClassBalancedSampler", "sampler.classes=4", "sampler.each=5")
    assert plan(*sampler)[0].settings.batch_size == 20
    assert plan(*sampler, "batch_size=40")[0].settings.batch_size == 40


def test_other_steps_take_everything_with_them(plan):
    made, asked = plan("log_every=7")
    changed = with_steps(made, asked, 5000, 2, "because")
    settings = changed.settings
    assert (settings.steps, settings.evaluate_every, settings.checkpoint_every, settings.log_every) == (
        5000,
        500,
        200,
        7,
    )
    assert settings.schedule.arguments["warmup"] == 100
    assert settings.networks == 2
    assert str(changed.choices[-2]) == "steps=5000: because"
    assert str(changed.choices[-1]) == "networks=2: each network has at least as many steps as without a budget"


@pytest.mark.parametrize(
    ("text", "wanted"), [("90s", 90), ("10m", 600), ("1.5h", 5400), ("1h30m", 5400), (45, 45), ("7", 7)]
)
def test_times(text, wanted):
    assert parse_seconds(text) == wanted


@pytest.mark.parametrize("text", ["", "soon", "0m", "-3", "3d", "1h x", "m"])
def test_refuses_times(text):
    with pytest.raises(ValueError, match=r"budget must be a time such as 90s, 10m or 1.5h"):
        parse_seconds(text)


def test_watched_are_whole_identities():
    labels = torch.arange(10).repeat_interleave(5)
    few = first_identities(labels, 17)
    assert len(few) == 15
    assert (torch.bincount(labels[few]).unique()).tolist() in ([0, 5], [5])
    assert torch.equal(first_identities(labels, 50), torch.arange(50))


def test_one_large_identity_leaves_room_for_another():
    labels = torch.tensor([0] * 100 + [1] * 100)
    assert len(labels[first_identities(labels, 10)].unique()) == 2


def test_splits_are_disjoint_and_the_same_from_memory_and_from_files():
    draw = np.random.default_rng(0).integers(0, 256, (40, 6, 6), dtype=np.uint8)
    source = ArraySource(draw, np.arange(8).repeat(5))
    division = divide(source, 0.25)
    prepare = PicturePreprocessing(size=(6, 6), channels=1)
    options = {"cache": None, "workers": 0, "watched": 5}
    memory, read = (load_splits(source, division, prepare, memory=memory, **options) for memory in (True, False))
    index = torch.arange(len(division.train))
    assert torch.equal(memory.train.batch(index)[0], read.train.batch(index)[0])
    assert torch.equal(memory.train.batch(index)[0][:, 0], torch.from_numpy(draw)[division.train])
    assert memory.train.labels.max() == 5
    assert len(memory.watched.labels.unique()) == 2
    assert len(memory.measured) == 10


def test_pictures_for_choices_are_spread_evenly():
    data = (torch.arange(5000) // 20).to(torch.uint8)[:, None, None, None].expand(-1, 1, 2, 2)
    found = sample_pictures(InMemory(data, torch.arange(5000) % 7, [str(i) for i in range(7)]), 2048)
    assert len(found) == 2048
    assert found[0].max() == 0
    assert found[-1].max() == 249
    assert found[1024].max() == 125


def test_a_planned_number_of_steps_is_kept_and_never_replaced_silently(tmp_path, monkeypatch):
    monkeypatch.setattr(planning, "count_steps_within", lambda task, left, measured: (70, 12.0))
    settings = FitSettings(steps=30, networks=3)

    def find(folder, budget="8s", given=None):
        return plan_steps(None, settings, given, folder, budget, 8.0, 10)

    assert find(tmp_path) == (35, 2, "as many as fit into 8s at 12 samples/s")
    assert find(tmp_path, given=3)[:2] == (23, 3)
    stored = tmp_path / "choices.json"
    stored.write_text('{"budget": "8s", "steps": 50, "networks": 1}')
    assert find(tmp_path) == (50, 1, "planned for 8s when the run started")
    assert find(tmp_path, "9s")[0] == 35
    assert find(None)[0] == 35
    for content, message in (("{", "is not readable as JSON"), ('{"budget": "8s"}', "must hold budget, steps and")):
        stored.write_text(content)
        with pytest.raises(ValueError, match=message):
            find(tmp_path)


def test_networks_are_as_many_as_train_in_minutes(plan):
    assert plan()[0].settings.networks == 3
    assert plan("steps=1500", "batch_size=50")[0].settings.networks == 2
    long = plan("steps=5000", "batch_size=50")[0]
    assert long.settings.networks == 1
    assert "would take too long" in next(choice.reason for choice in long.choices if choice.key == "networks")
    assert plan("networks=5")[0].settings.networks == 5
