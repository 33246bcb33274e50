import re
import threading
import time
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from torch import nn

from hypersphere import angular, models
from hypersphere.evaluation import evaluation_mode
from hypersphere.models import Conv, ConvNet, Network, Pool, read_features
from hypersphere.models.network import find_feature_dim
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


class Transformer(nn.Module):
    """Returns outputs like those of ``transformers``."""

    def __init__(self, pooled):
        super().__init__()
        self.pooled = pooled

    def forward(self, x):
        tokens = x.flatten(2).mT
        return SimpleNamespace(last_hidden_state=tokens, pooler_output=tokens[:, 0] if self.pooled else None)


def test_features_wherever_they_come_from():
    x = torch.randn(2, 3, 4, 5)
    torch.testing.assert_close(read_features(nn.Identity(), x), x.mean((2, 3)))
    torch.testing.assert_close(read_features(Transformer(pooled=False), x), x.mean((2, 3)))
    torch.testing.assert_close(read_features(Transformer(pooled=True), x), x[:, :, 0, 0])
    assert read_features(nn.Flatten(), x).shape == (2, 60)


def test_a_submodule_called_features_is_no_method():
    network = nn.ModuleDict({"features": nn.Linear(3, 2)})
    network.forward = lambda x: x[:, :1]
    assert read_features(network, torch.ones(2, 3)).shape == (2, 1)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (lambda x: {"a": x}, "must return features as a tensor or as an output of transformers"),
        (lambda x: x[:, 0, 0, 0], r"must return features of shape \(batch, dim\), got \(2,\)"),
        (lambda x: x.flatten(1).long(), r"must return features of shape \(batch, dim\)"),
    ],
)
def test_refuses_what_gives_no_features(network, message):
    module = nn.Module()
    module.forward = network
    with pytest.raises(ValueError, match=message):
        read_features(module, torch.ones(2, 3, 2, 2))


def test_the_dimension_is_what_a_network_says_or_gives():
    network = nn.Identity()
    network.feature_dim = 7
    assert find_feature_dim(network, torch.zeros(1)) == 7
    plain = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(6), nn.Linear(6, 4)).train()
    mean = plain[1].running_mean.clone()
    assert find_feature_dim(plain, torch.randn(3, 1, 2, 3)) == 4
    assert plain.training
    assert torch.equal(plain[1].running_mean, mean)


def test_every_module_gets_its_own_mode_back_whatever_happens():
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(2).eval(), torch.nn.Sequential(torch.nn.Dropout()))
    before = [module.training for module in model.modules()]
    assert before == [True, False, True, True]

    def fail():
        with evaluation_mode(model):
            assert not any(module.training for module in model.modules())
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fail()
    assert [module.training for module in model.modules()] == before


def test_threads_that_share_a_model_stay_in_evaluation_mode():
    model = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(4)).train()
    x = torch.randn(8, 4)
    with evaluation_mode(model), torch.no_grad():
        right = model(x)
    wrong = []

    def work():
        for _ in range(50):
            with evaluation_mode(model), torch.no_grad():
                time.sleep(0.0001)
                if not torch.equal(model(x), right):
                    wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert all(module.training for module in model.modules())
