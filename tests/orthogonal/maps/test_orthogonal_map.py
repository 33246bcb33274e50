import pytest
import torch
from torch import nn

from hypersphere.orthogonal import Free, Map, merge, overparameterize
from tests.orthogonal.contracts import LAYERS, MethodContract, build


class TestRegularized(MethodContract):
    method = "regularized"


class TestUnconstrained(MethodContract):
    method = "unconstrained"

    def test_is_the_matrix_itself(self):
        x = torch.randn(2, 3, 3)
        assert torch.equal(Free()(x), x)
        assert repr(Free("ogd")) == "Free(by='ogd')"
        assert (Free("ogd").freedom(4), Free().freedom(4)) == (6, 16)


class Scaled(nn.Module):
    """A user's module with a parameter."""

    def __init__(self):
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(()))

    def forward(self, raw):
        return raw * self.log_scale.exp()


class TestUsersModule:
    @pytest.mark.parametrize("kind", LAYERS)
    def test_learns_with_the_layer_and_merges(self, kind):
        layer, x = build(kind)
        y = layer(x)
        overparameterize(layer, Scaled())
        assert torch.allclose(layer(x), y, atol=1e-6)
        assert "parametrizations.weight.0.tasks.default.map.map.log_scale" in dict(layer.named_parameters())
        torch.optim.SGD(layer.parameters(), lr=0.1).step(lambda: layer(x).square().mean().backward())
        trained = layer(x)
        assert not torch.allclose(trained, y)
        assert torch.allclose(merge(layer)(x), trained, atol=1e-6)

    def test_each_layer_has_its_own_copy(self):
        mine = Scaled()
        net = overparameterize(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), mine, classifier=False)
        scales = [p for name, p in net.named_parameters() if name.endswith("log_scale")]
        assert len({id(p) for p in [*scales, mine.log_scale]}) == 3


class Bent(Map):
    """A nonlinear T(v) (F.35), which has no matrix R."""

    def act(self, raw, rows):
        return rows + torch.tanh(rows @ raw.mT)

    def identity(self, raw):
        return torch.zeros_like(raw)


def test_a_nonlinear_transformation_of_the_neurons():
    layer, x = build("conv2d")
    y = layer(x)
    overparameterize(layer, Bent(), start="identity")
    assert torch.equal(layer(x), y)
    nn.init.eye_(layer.parametrizations.weight[0].rotation.raw)
    v = layer.parametrizations.weight.original
    assert torch.allclose(layer.weight, v + torch.tanh(v))
    assert torch.allclose(merge(layer).weight, v + torch.tanh(v))


def test_the_base_class_says_what_is_missing():
    with pytest.raises(TypeError, match="must define forward"):
        Map()(torch.eye(2))


def test_a_map_without_an_identity_says_so_and_starts_from_the_normal_distribution():
    layer = nn.Linear(16, 2)
    with pytest.raises(ValueError, match="gives the identity neither at I nor at 0"):
        overparameterize(layer, lambda x: 2 * x, start="identity")
    assert isinstance(layer.weight, nn.Parameter)
    raw = overparameterize(layer, lambda x: 2 * x).parametrizations.weight[0].rotation.raw
    assert abs(raw.std() - 1) < 0.2
