import json

import pytest
import torch
from torch import nn

from hypersphere.config import Call, call, decode_arguments, encode, flatten, list_differences
from hypersphere.energy import CoMHE, projections
from hypersphere.objectives import ArcFace, CenterLoss, Softmax
from hypersphere.training import Config, Term, from_json, replace, to_json

CONFIG = Config(
    steps=7,
    head=call(ArcFace, m=0.4),
    energy=call(CoMHE, projection=call(projections.RandomProjection, count=3)),
    losses=(Term(call(CenterLoss), 0.01),),
    optimizer=call(torch.optim.Adam, betas=(0.8, 0.9)),
)


class Net(nn.Module):
    def __init__(self, width: int = 4):
        super().__init__()


def test_round_trip_keeps_every_setting():
    again = from_json(to_json(CONFIG))
    assert list_differences(CONFIG, again) == {}
    assert to_json(again) == to_json(CONFIG)
    assert again.energy.arguments["projection"].arguments["count"] == 3
    assert again.losses[0].weight == 0.01


def test_defaults_are_written_out():
    assert json.loads(to_json(CONFIG))["head"]["scale"] == 64.0
    assert encode(CONFIG.head) == {"call": "ArcFace", "m": 0.4}


def test_differences_by_key():
    assert list_differences(CONFIG, replace(CONFIG, {"head.m": 0.5}, steps=8)) == {
        "steps": (7, 8),
        "head.m": (0.4, 0.5),
    }
    found = list_differences(CONFIG, replace(CONFIG, head=call(Softmax)))
    assert found["head"] == ("ArcFace", "Softmax")
    assert found["head.m"] == (0.4, None)


def test_code_of_others_is_imported_only_with_trust():
    text = to_json(Config(backbone=call(Net, width=3)))
    with pytest.raises(ValueError, match=r"backbone is 'tests.config.test_documents:Net', code outside hypersphere"):
        from_json(text)
    assert from_json(text, trust=True).backbone == Call(Net, {"width": 3})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", r"a config must be an object with keys, got \[\]"),
        ("{", "a config must be JSON"),
        ('{"stepz": 1}', r"there is no key stepz: Config has .*did you mean steps\?"),
        ('{"steps": "many"}', "steps must be an integer, got 'many'"),
        ('{"head": {"call": "os.system"}}', "head must be one of"),
        ('{"head": {"call": 3}}', "head must name what is called, got 3"),
        ('{"head": {"call": "ArcFace", "m": []}}', r"head.m must be a number"),
        ('{"head": {"call": "ArcFace", "wings": 2}}', "there is no key head.wings: ArcFace has"),
        ('{"size": 0}', "size must be one number or height and width, each in 1 … 4096, got 0"),
    ],
)
def test_wrong_documents_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        from_json(text)


def test_objects_cannot_be_written():
    with pytest.raises(
        ValueError, match=r"a config holds numbers, text, lists and calls, got Linear: write call\(Linear"
    ):
        encode({"x": nn.Linear(1, 1)})
    assert flatten({"a": [1, {"b": 2}]}) == {"a.1.b": 2, "a.0": 1} or flatten({"a": [{"b": 2}]}) == {"a.0.b": 2}
    assert decode_arguments(ArcFace, {"m": 1}) == {"m": 1.0}
