import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from hypersphere.config import call
from hypersphere.models import cnn3
from hypersphere.recognition.networks import _NoDraws, embedding, empty_network, feature_dim

from .small_networks import COLUMNS, ROWS, small_cnn


class Transformer(nn.Module):
    """Gives what networks of ``transformers`` give."""

    def __init__(self, pooled):
        super().__init__()
        self.pooled = pooled

    def forward(self, x):
        tokens = x.flatten(2).mT
        return SimpleNamespace(last_hidden_state=tokens, pooler_output=tokens[:, 0] if self.pooled else None)


def test_features_wherever_they_come_from():
    x = torch.randn(2, 3, 4, 5)
    torch.testing.assert_close(embedding(nn.Identity(), x), x.mean((2, 3)))
    torch.testing.assert_close(embedding(Transformer(pooled=False), x), x.mean((2, 3)))
    torch.testing.assert_close(embedding(Transformer(pooled=True), x), x[:, :, 0, 0])
    assert embedding(nn.Flatten(), x).shape == (2, 60)


def test_a_submodule_called_features_is_no_method():
    network = nn.ModuleDict({"features": nn.Linear(3, 2)})
    network.forward = lambda x: x[:, :1]
    assert embedding(network, torch.ones(2, 3)).shape == (2, 1)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (lambda x: {"a": x}, "must give features as a tensor, or as an output of transformers"),
        (lambda x: x[:, 0, 0, 0], r"must give features of shape \(batch, dim\), got \(2,\)"),
        (lambda x: x.flatten(1).long(), r"must give features of shape \(batch, dim\)"),
    ],
)
def test_refuses_what_gives_no_features(network, message):
    module = nn.Module()
    module.forward = network
    with pytest.raises(ValueError, match=message):
        embedding(module, torch.ones(2, 3, 2, 2))


def test_the_dimension_is_what_a_network_says_or_gives():
    network, _ = small_cnn(dim=7)
    assert feature_dim(network, torch.zeros(1)) == 7
    plain = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(6), nn.Linear(6, 4)).train()
    mean = plain[1].running_mean.clone()
    assert feature_dim(plain, torch.randn(3, 1, 2, 3)) == 4
    assert plain.training
    assert torch.equal(plain[1].running_mean, mean)


def test_an_empty_network_takes_the_tensors():
    network, made = small_cnn()
    state = network.state_dict()
    again = empty_network(made, state).eval()
    x = torch.randn(2, 1, ROWS, COLUMNS)
    assert torch.equal(again(x), network(x))


class Buffered(nn.Module):
    """Keeps a tensor that its state does not hold, which no file can give back."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.register_buffer("scale", torch.full((2,), 3.0), persistent=False)

    def forward(self, x):
        return self.linear(x) * self.scale


def test_what_the_state_does_not_hold_is_built():
    network = Buffered()
    again = empty_network(call(Buffered), network.state_dict())
    assert torch.equal(again(torch.ones(1, 2)), network(torch.ones(1, 2)))


def test_other_names_or_shapes_are_refused_before_anything_is_allocated():
    network, _ = small_cnn()
    with pytest.raises(ValueError, match=r"\d+ tensors differ from those of cnn3, the first is .* instead of"):
        empty_network(call(cnn3, num_classes=None, widths=(10**9, 4, 4)), network.state_dict())
    with pytest.raises(ValueError, match=r"cnn3 cannot be built"):
        empty_network(call(cnn3, num_classes=None, widths=(10**18, 10**18, 4)), network.state_dict())


def test_a_network_without_memory_draws_nothing_and_others_do():
    with torch.device("meta"), _NoDraws():
        layer = nn.Linear(3, 2)
        real = torch.empty(1000, device="cpu").normal_()
    assert layer.weight.is_meta
    assert 0.8 < real.std() < 1.2


def test_an_empty_network_does_not_import_the_compiler():
    code = (
        "import sys, torch; from hypersphere import models; from hypersphere.config.calls import Call\n"
        "from hypersphere.recognition.networks import empty_network\n"
        "made = Call(models.cnn3, {'num_classes': None, 'width': 0.125})\n"
        "empty_network(made, made.build().state_dict()); print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
