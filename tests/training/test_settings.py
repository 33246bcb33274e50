import dataclasses
import json

import pytest
import torch

from hypersphere import models
from hypersphere.objectives import ArcFace, CenterLoss
from hypersphere.training import Config, Settings, StepRate, Term, call, from_json, replace, to_json
from hypersphere.training.settings import from_document


@pytest.mark.untyped  # passes values of wrong types
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(({name: 0}, f"{name} must be an integer ≥ 1, got 0") for name in ("steps", "patience")),
        ({"keep": 0}, "keep must lie in 1 … 1000, got 0"),
        ({"keep": 10**6}, "keep must lie in 1 … 1000, got 1000000"),
        ({"average": 2**32}, "average must lie in 0 … 1000, got 4294967296"),
        ({"accumulate": 0}, "accumulate must lie in 1 … 65536, got 0"),
        ({"seed": -1}, "seed must be an integer ≥ 0, got -1"),
        ({"steps": True}, "steps must be an integer ≥ 1, got True"),
        ({"steps": 2**53}, "steps must be an integer"),
        ({"timeout": 0}, "timeout must be an integer ≥ 1, got 0"),
        ({"threads": 2000}, "threads must lie in 0 … 1024, got 2000"),
        ({"clip": 0.0}, "clip must be a number > 0 or none, got 0.0"),
        ({"clip": float("nan")}, "clip must be a number > 0 or none, got nan"),
        ({"ema": 1.0}, r"ema must lie in \(0, 1\) or be none, got 1.0"),
        ({"layer_decay": 1.5}, "layer_decay must lie in"),
        ({"precision": "fp8"}, "precision must be no, bf16 or fp16, got 'fp8'"),
        ({"rates": {"head": -1.0}}, "rates must be numbers ≥ 0, got -1.0 for 'head'"),
        ({"optimizer": call(torch.optim.SGD, lr=float("nan"))}, "optimizer.lr must be a finite number ≥ 0, got nan"),
    ],
)
def test_refuses(changes, message):
    with pytest.raises(ValueError, match=message):
        Settings(**changes)


def test_a_copy_with_other_values():
    changed = Settings().replace({"optimizer.lr": 0.5, "schedule.milestones": (1,)}, steps=3)
    assert (changed.steps, changed.optimizer.get("lr"), changed.schedule.get("milestones")) == (3, 0.5, (1,))
    assert Settings().steps == 1000
    assert Settings(layer_decay=1.0).layer_decay == 1.0


def test_json_round_trip_keeps_every_setting() -> None:
    config = replace(
        Config(steps=7, name="x", losses=(Term(call(CenterLoss), 0.01),)),
        {"samples.classes": 4},
        schedule=call(StepRate, milestones=(3, 5)),
        head=call(ArcFace, m=0.25),
        backbone=call(models.cnn6, table="D.1"),
    )
    again = from_json(to_json(config))
    assert to_json(again) == to_json(config)
    assert again.schedule.arguments["milestones"] == (3, 5)
    assert isinstance(again.schedule.arguments["milestones"], tuple)
    assert again.losses[0].weight == 0.01
    assert again.samples.classes == 4


def test_integers_become_floats_where_floats_are_meant() -> None:
    values = json.loads(to_json(Config()))
    values["optimizer"]["lr"] = 1
    lr = from_document(values).optimizer.arguments["lr"]
    assert lr == 1.0
    assert isinstance(lr, float)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("head", "call"), "Sofmax", r"head must be one of .*, got 'Sofmax'; did you mean Softmax\?"),
        (("steps",), "many", "steps must be an integer, got 'many'"),
        (("steps",), True, "steps must be an integer, got True"),
        (("steps",), 0, "steps must be an integer ≥ 1, got 0"),
        (("samples", "rotations"), 1, "samples.rotations must be true or false, got 1"),
        (("samples", "clases"), 3, r"there is no key samples.clases: Selection has .*did you mean classes\?"),
        (("samples",), 3, "samples must be a Selection, got 3"),
        (("schedule", "milestones"), [1.5], r"schedule.milestones must be a list, got \[1.5\]"),
        (("samples", "classes"), "ten", "samples.classes must be an integer or none, got 'ten'"),
        (("batch_size",), 0, "batch_size must be an integer ≥ 1, got 0"),
        (("workers",), 300, "workers must lie in 0 … 256, got 300"),
        (("project_every",), -1, "project_every must be an integer ≥ 0, got -1"),
        (("channels",), 2, "channels must be 1, 3 or none, got 2"),
        (("crop",), 0, "crop must be an integer ≥ 1, square or none, got 0"),
    ],
)
def test_refuses_in_documents(path: tuple[str, ...], value: object, message: str) -> None:
    values = json.loads(to_json(Config()))
    inner = values
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(ValueError, match=message):
        from_json(json.dumps(values))


def test_configs_cannot_be_changed_by_accident() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().size = 3  # type: ignore[misc]
    config = Config()
    assert replace(config, {"optimizer.lr": 0.5}, size=16).size == 16
    assert config.size is None
    assert isinstance(config.optimizer.build(params=[torch.zeros(1, requires_grad=True)]), torch.optim.SGD)
