from dataclasses import dataclass, field
from typing import Annotated

import pytest
import torch
from torch import nn

from hypersphere.angular import Sigmoid
from hypersphere.config import Call, Kind, call
from hypersphere.objectives import ArcFace, MarginSoftmax
from hypersphere.objectives.margins import AdditiveAngle


@dataclass(frozen=True)
class Slot:
    head: Annotated[Call, Kind(MarginSoftmax)] = field(default_factory=lambda: call(ArcFace))


def make(size: int, layer: "type[nn.Module] | None" = None, *, width: float = 1.0) -> nn.Linear:
    return nn.Linear(size, int(width * 8))


def test_builds_with_arguments_and_context():
    head = call(MarginSoftmax, margin=call(AdditiveAngle, m=0.2), angular=call(Sigmoid, k=0.3), scale=20.0)
    built = head.build(in_features=4, num_classes=3, something_else=1)
    assert (built.margin.m, float(built.angular.k), built.scale, built.num_classes) == (
        0.2,
        pytest.approx(0.3),
        20.0,
        3,
    )


def test_set_arguments_win_over_context():
    assert call(make, size=2).build(size=5).in_features == 2


def test_missing_arguments_are_named():
    with pytest.raises(ValueError, match=r"ArcFace needs in_features, num_classes: set it, e.g. in_features="):
        call(ArcFace).build()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mm": 1}, "ArcFace has no argument mm; it has in_features, num_classes, m, scale"),
        ({"m": "wide"}, r"ArcFace.m must be a number or .*got 'wide'"),
        ({"m": True}, r"ArcFace.m must be a number or .*got True"),
        ({"sub_centers": 1.5}, "ArcFace.sub_centers must be an integer, got 1.5"),
    ],
)
def test_wrong_arguments_are_refused_where_they_are_written(arguments, message):
    with pytest.raises(ValueError, match=message):
        Call(ArcFace, arguments)


def test_a_slot_keeps_the_call():
    slot = Call(Slot, {"head": call(ArcFace, m=0.1)}).build(in_features=2, num_classes=2)
    assert isinstance(slot.head, Call)
    assert slot.head.arguments == {"m": 0.1}


def test_partial_is_a_factory():
    factory = call(ArcFace, m=0.1).partial()
    assert factory(4, 3).weight.shape == (3, 4)


def test_replace_reaches_inner_calls():
    head = call(MarginSoftmax, margin=call(AdditiveAngle, m=0.2))
    assert head.replace({"margin.m": 0.4}, scale=5.0).get("margin").arguments == {"m": 0.4}
    with pytest.raises(ValueError, match=r"angular.k cannot be set before angular"):
        head.replace({"angular.k": 1})


def test_get_gives_defaults_and_refuses_strangers():
    assert call(ArcFace, m=0.1).get("m") == 0.1
    assert call(ArcFace).get("scale") == 64.0
    with pytest.raises(ValueError, match="ArcFace has no argument wings"):
        call(ArcFace).get("wings")


def test_objects_pass_through():
    margin = AdditiveAngle(0.1)
    assert call(MarginSoftmax, margin=margin).build(in_features=2, num_classes=2).margin is margin
    assert torch.is_tensor(call(MarginSoftmax, scale=nn.Parameter(torch.ones(1))).arguments["scale"])
