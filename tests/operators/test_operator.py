import dataclasses

import pytest
import torch
from torch import nn

from hypersphere import angular
from hypersphere.neurons import get_change_report
from hypersphere.operators import Operator, OperatorLayer, convert, magnitudes


def network():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 5), nn.Linear(5, 2))


def test_convert_takes_it_whole():
    one, other = network(), network()
    h, g = magnitudes.Log(alpha=2), angular.SquareCosine()
    report = get_change_report(convert(one, operator=Operator(h, g, skip=("3",))))
    convert(other, h, g, skip=["3"])
    other.load_state_dict(one.state_dict())
    x = torch.randn(2, 3, 4, 4)
    assert torch.equal(one(x), other(x))
    assert report.skipped == {"3": "named in skip"}


def test_the_default_is_the_sphere_and_the_cosine():
    net = network()
    convert(net, operator=Operator())
    kinds = {(type(m.magnitude), type(m.angular)) for m in net.modules() if isinstance(m, OperatorLayer)}
    assert kinds == {(magnitudes.Sphere, angular.Cosine)}


def test_it_is_a_value():
    operator = Operator(magnitudes.Tanh())
    with pytest.raises(dataclasses.FrozenInstanceError):
        operator.skip = ("0",)
    assert [f.name for f in dataclasses.fields(Operator)] == ["magnitude", "angular", "skip"]


def test_an_operator_beside_a_magnitude_is_refused():
    with pytest.raises(ValueError, match="pass either operator or magnitude and angular"):
        convert(network(), magnitudes.Log(), operator=Operator())


def test_a_name_that_means_no_layer_is_refused():
    with pytest.raises(ValueError, match="skip names '1', which matches no layer"):
        convert(network(), operator=Operator(skip=("1",)))


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"magnitude": torch.sqrt}, "magnitude must be None or a Magnitude object"),
        ({"magnitude": angular.Linear()}, "magnitude must be None or a Magnitude object"),
        ({"angular": magnitudes.Linear()}, "angular must be None or a Angular object"),
        ({"skip": "fc"}, "skip must be a tuple of layer names, got 'fc'"),
        ({"skip": (3,)}, "skip must be a tuple of layer names"),
    ],
)
def test_refuses(wrong, message):
    with pytest.raises(ValueError, match=message):
        Operator(**wrong)
