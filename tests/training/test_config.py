import dataclasses
import json

import pytest
import torch

from hypersphere import models
from hypersphere.objectives import ArcFace, CenterLoss
from hypersphere.training import Config, Images, StepRate, Term, call, from_json, replace, to_json
from hypersphere.training.config import from_document


def test_json_round_trip_keeps_every_setting() -> None:
    config = replace(
        Config(steps=7, name="x", losses=(Term(call(CenterLoss), 0.01),)),
        schedule=call(StepRate, milestones=(3, 5)),
        head=call(ArcFace, m=0.25),
        samples__classes=4,
        model=call(models.cnn6, table="D.1"),
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
        (("images", "channels"), 2, "images.channels must be 1, 3 or none, got 2"),
        (("images", "crop"), 0, "images.crop must be an integer ≥ 1, square or none, got 0"),
    ],
)
def test_refuses(path: tuple[str, ...], value: object, message: str) -> None:
    values = json.loads(to_json(Config()))
    inner = values
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(ValueError, match=message):
        from_json(json.dumps(values))


def test_configs_cannot_be_changed_by_accident() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Images().size = 3  # type: ignore[misc]
    config = Config()
    assert replace(config, optimizer__lr=0.5, images__size=16).images.size == 16
    assert config.images.size is None
    assert isinstance(config.optimizer.build(params=[torch.zeros(1, requires_grad=True)]), torch.optim.SGD)
