import json

import pytest
import torch

from hypersphere.config import call
from hypersphere.objectives import LSoftmax
from hypersphere.training import replace
from studies.liu2020 import Computation, Training, compare_settings

from .tiny import arms


def drawn(seed: int, size: int = 3, wild: bool = False):
    """A computation for an arm: a metric that depends on the seed, and a curve."""
    value = torch.rand(size, generator=torch.Generator().manual_seed(seed)).sum().item()
    return {"metrics": {"sum": value, "nothing": float("nan") if wild else 0.0}, "curve": {"step": [1], "sum": [value]}}


def noted(experiment, folder, extra: float = 1.0):
    """Measure a finished run."""
    return {"extra": extra, "steps_done": float(experiment.step), "there": float(folder.exists())}


def test_a_computation_is_a_function_of_its_seed(tmp_path):
    arm = Computation(call(drawn, size=4), "noise")
    rows = [arm.make_row(seed, tmp_path, threads=1) for seed in (0, 1, 0)]
    assert rows[0]["metrics"] == rows[2]["metrics"] != rows[1]["metrics"]
    assert rows[0]["curve"]["step"] == [1]
    assert rows[0]["setting"]["function.size"] == 4
    assert "function.seed" not in rows[0]["setting"]
    assert arm.data == "noise"
    assert not rows[0]["diverged"]
    json.dumps(rows[0], allow_nan=False)


def test_what_is_not_a_number_is_no_metric(tmp_path):
    assert set(Computation(call(drawn, wild=True)).make_row(0, tmp_path)["metrics"]) == {"sum"}


def test_a_training_is_measured_by_its_task_and_further_measures(tmp_path):
    arm = Training(arms("laptop")["a/softmax"].config, (call(noted, extra=2.0),))
    row = arm.make_row(1, tmp_path / "run", threads=1)
    assert row["metrics"]["extra"] == 2
    assert row["metrics"]["steps_done"] == 4
    assert row["metrics"]["there"] == 1
    assert row["metrics"]["accuracy"] > 0
    assert row["setting"]["measures.0.extra"] == 2
    assert row["cpu_seconds"] >= 0
    assert not {"seed", "threads", "pictures", "name"} & set(row["setting"])


def test_settings_are_chosen_without_the_test_set_and_the_further_measures():
    arm = Training(arms("laptop")["a/softmax"].config, (call(noted),))
    held = arm.with_validation(arm.config)
    assert held.config.samples.validation == 0.1
    assert held.measures == ()


def test_arms_name_every_difference():
    plain = arms("laptop")["a/softmax"]
    other = Training(replace(plain.config, head=call(LSoftmax, m=3), steps=9))
    found = compare_settings(other, plain)
    assert {"head", "head.m", "steps"} <= set(found)
    assert found["head.m"] == (3, None)
    assert compare_settings(plain, plain) == {}


def test_a_computation_of_unknown_arguments_is_refused():
    with pytest.raises(ValueError, match="drawn has no argument sizes"):
        Computation(call(drawn, sizes=4))
