import numpy as np
import pytest
import torch

from hypersphere.data import check, open_source
from hypersphere.objectives import CosFace
from hypersphere.recognition.baselines import first_identities
from hypersphere.training.fitting.plan import make_plan
from hypersphere.training.fitting.settings import Overrides
from hypersphere.training.fitting.splits import divide


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


def test_watched_are_whole_identities():
    labels = torch.arange(10).repeat_interleave(5)
    few = first_identities(labels, 17)
    assert len(few) == 15
    assert (torch.bincount(labels[few]).unique()).tolist() in ([0, 5], [5])
    assert torch.equal(first_identities(labels, 50), torch.arange(50))


def test_one_large_identity_leaves_room_for_another():
    labels = torch.tensor([0] * 100 + [1] * 100)
    assert len(labels[first_identities(labels, 10)].unique()) == 2


def test_networks_are_as_many_as_train_in_minutes(plan):
    assert plan()[0].settings.networks == 3
    assert plan("steps=1500", "batch_size=50")[0].settings.networks == 2
    long = plan("steps=5000", "batch_size=50")[0]
    assert long.settings.networks == 1
    assert "would take too long" in next(choice.reason for choice in long.choices if choice.key == "networks")
    assert plan("networks=5")[0].settings.networks == 5
