import dataclasses
import json

import pytest

from hypersphere.experiments import Config, from_json, replace, to_json
from hypersphere.training.config import Data, differences


def test_json_round_trip_keeps_every_knob() -> None:
    config = replace(
        Config(steps=7, name="x"),
        optimizer__milestones=(3, 5),
        head__m=2.5,
        data__classes=4,
        model__operator__skip=("fc*",),
    )
    again = from_json(to_json(config))
    assert again == config
    assert isinstance(again.optimizer.milestones, tuple)
    assert isinstance(again.model.operator.skip, tuple)


def test_integers_become_floats_where_floats_are_meant() -> None:
    values = json.loads(to_json(Config()))
    values["optimizer"]["lr"] = 1
    lr = from_json(json.dumps(values)).optimizer.lr
    assert lr == 1.0
    assert isinstance(lr, float)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("head", "name"), "Sofmax", r"head.name must be 'Softmax', .*, got 'Sofmax'"),
        (("steps",), "many", "steps must be int, got 'many'"),
        (("steps",), True, "steps must be int, got True"),
        (("steps",), 0, "steps must be an integer ≥ 1, got 0"),
        (("data", "rotations"), 1, "data.rotations must be bool, got 1"),
        (("data", "clases"), 3, "data has no key clases; it has name, size"),
        (("data",), 3, "data must be an object with keys, got 3"),
        (("optimizer", "milestones"), [1.5], "optimizer.milestones must be int, got 1.5"),
        (("data", "classes"), "ten", "data.classes must be int, got 'ten'"),
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


def test_differences_are_named_by_path() -> None:
    assert differences(Config(), replace(Config(), head__m=2.0, seed=3)) == {"head.m": (None, 2.0), "seed": (0, 3)}


def test_configs_cannot_be_changed_by_accident() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Data().name = "MNIST"  # type: ignore[misc]
