import re
from typing import ClassVar

import pytest
import torch
from torch import nn

from hypersphere import angular, models
from hypersphere.models import Conv, ConvNet, Network, Pool
from hypersphere.operators import Operator, magnitudes
from tests.export import onnx_outputs

from .contract import ImageContract

ROWS = [Conv(8, 2), Pool(), Conv(16), Pool()]


class TestFlattened(ImageContract):
    """Two fully connected layers, the first hidden, as in the 256-2-10 network of C.4."""

    small: ClassVar = {"width": 0.5, "input_size": 8}
    feature_dim = 6

    def build(self, num_classes=5, **options):
        return ConvNet(ROWS, num_classes, fc=[20, 6], **options)

    def test_only_the_hidden_fully_connected_layer_acts(self):
        fc = self.make().fc
        assert [type(m) for m in fc.modules() if not isinstance(m, nn.Sequential)] == [nn.Linear, nn.ReLU, nn.Linear]
        assert fc[0].linear.out_features == 10


class TestAveraged(ImageContract):
    small: ClassVar = {"width": 0.5}
    feature_dim = 8

    def build(self, num_classes=5, **options):
        return ConvNet(ROWS, num_classes, average=True, **options)

    def test_any_size_of_input(self):
        model = self.make().eval()
        x = torch.randn(2, 3, 13, 9)
        assert torch.allclose(model.features(x), model.body(x).mean((2, 3)), atol=1e-6)


def test_rows_are_named_after_the_table():
    assert list(dict(ConvNet(ROWS, input_size=8).body.named_children())) == ["conv1", "pool1", "conv2", "pool2"]


def test_images_of_another_size_are_refused():
    net = ConvNet(ROWS, input_size=(8, 12))
    assert net.feature_dim == 16 * 2 * 3
    assert net(torch.zeros(2, 3, 8, 12)).shape == (2, 10)
    with pytest.raises(
        ValueError, match=re.escape("images must have shape (3, 8, 12) (channels, height, width), got (3, 12, 8)")
    ):
        net(torch.zeros(2, 3, 12, 8))


def test_an_input_that_vanishes_is_refused():
    with pytest.raises(ValueError, match="input_size 3 is too small"):
        ConvNet(ROWS, input_size=3)


def test_a_network_must_say_what_its_features_are():
    with pytest.raises(TypeError, match="features"):
        Network()


@pytest.mark.untyped
def test_compiles_as_one_graph():
    torch._dynamo.reset()
    net = ConvNet(ROWS, input_size=8, fc=[6]).eval()
    x = torch.randn(3, 3, 8, 8)
    assert torch.allclose(torch.compile(net, backend="aot_eager", fullgraph=True)(x), net(x), atol=1e-6)


LEARNED = Operator(magnitudes.Tanh(), angular.Sigmoid(learnable="filter"))
NETWORKS = {
    "flattened": (lambda operator: ConvNet(ROWS, input_size=8, fc=[6], operator=operator), (3, 8, 8)),
    "residual": (lambda operator: models.resnet20(width=0.25, table="B.2", operator=operator), (3, 8, 8)),
    "perceptron": (lambda operator: models.mlp(width=0.1, in_features=12, operator=operator), (3, 2, 2)),
    "points": (lambda operator: models.pointnet(width=0.05, operator=operator), (3, 10)),
}


@pytest.mark.untyped
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("operator", [None, LEARNED], ids=["plain", "operator"])
def test_exports_for_any_batch(name, operator):
    build, shape = NETWORKS[name]
    net, example, x = build(operator).eval(), torch.randn(3, *shape), torch.randn(5, *shape)
    assert torch.allclose(onnx_outputs(net, x, example=(example,))[0], net(x), atol=1e-5)


def test_an_activation_behind_the_features():
    x = torch.randn(4, 3, 8, 8)
    net = ConvNet(ROWS, input_size=8, fc=[6], last_activation="relu").eval()
    assert (net.features(x) >= 0).all()
    assert torch.equal(net.features(x), net.fc(net.body(x).flatten(1)).relu())
