import numpy as np
import pytest

from hypersphere.data import check, open_source
from hypersphere.training import Recognition
from hypersphere.training.fitting import budget
from hypersphere.training.fitting.budget import parse_seconds, plan_steps, replace_steps
from hypersphere.training.fitting.plan import make_plan
from hypersphere.training.fitting.settings import FitSettings, Overrides
from hypersphere.training.fitting.splits import divide


@pytest.mark.parametrize(
    ("text", "wanted"), [("90s", 90), ("10m", 600), ("1.5h", 5400), ("1h30m", 5400), (45, 45), ("7", 7)]
)
def test_times(text, wanted):
    assert parse_seconds(text) == wanted


@pytest.mark.parametrize("text", ["", "soon", "0m", "-3", "3d", "1h x", "m"])
def test_refuses_times(text):
    with pytest.raises(ValueError, match=r"budget must be a time such as 90s, 10m or 1.5h"):
        parse_seconds(text)


def test_other_steps_change_the_intervals():
    pictures = np.random.default_rng(0).integers(0, 256, (60, 12, 20), dtype=np.uint8)
    source, overrides = open_source((pictures, np.arange(10).repeat(6))), Overrides(["log_every=7"])
    plan = make_plan(source, check(source).to_json(), divide(source, 0.2), overrides)
    changed = replace_steps(plan, overrides, 5000, 2, "because")
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
    assert str(changed.choices[-1]) == "networks=2: each network makes at least as many steps as without a budget"


def test_a_planned_number_of_steps_is_kept_and_never_replaced_silently(tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "count_steps_within", lambda task, seconds, measured: (70, 12.0))
    settings = FitSettings(steps=30, networks=3)

    def find(folder, text="8s", networks=None):
        return plan_steps(object.__new__(Recognition), settings, networks, folder, text, 8.0, 10)

    assert find(tmp_path) == (35, 2, "as many as fit into 8s at 12 samples/s")
    assert find(tmp_path, networks=3)[:2] == (23, 3)
    stored = tmp_path / "choices.json"
    stored.write_text('{"budget": "8s", "steps": 50, "networks": 1}')
    assert find(tmp_path) == (50, 1, "planned for 8s when the run started")
    assert find(tmp_path, "9s")[0] == 35
    assert find(None)[0] == 35
    for content, message in (("{", "is not readable as JSON"), ('{"budget": "8s"}', "must hold budget, steps and")):
        stored.write_text(content)
        with pytest.raises(ValueError, match=message):
            find(tmp_path)
