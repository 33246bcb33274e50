import numpy as np
import pytest

from hypersphere.data import check, open_source
from hypersphere.objectives import CosFace
from hypersphere.training.fitting.division import divide
from hypersphere.training.fitting.plans import make_plan, with_steps
from hypersphere.training.fitting.wishes import wishes


@pytest.fixture
def plan():
    draw = np.random.default_rng(0).integers(0, 256, (60, 12, 20), dtype=np.uint8)
    source = open_source((draw, np.arange(10).repeat(6)))

    def make(*texts):
        asked = wishes(texts, {})
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
    changed = with_steps(made, asked, 5000, "because")
    settings = changed.settings
    assert (settings.steps, settings.evaluate_every, settings.checkpoint_every, settings.log_every) == (
        5000,
        500,
        200,
        7,
    )
    assert settings.schedule.arguments["warmup"] == 100
    assert str(changed.choices[-1]) == "steps=5000: because"
