from typing import ClassVar

import pytest
import torch
from torch import nn

from hypersphere import models

from .contract import ModelContract, layers_of


class TestMLP(ModelContract):
    small: ClassVar = {"width": 1 / 16, "in_features": 12}
    feature_dim = 16
    sphere_conv = None
    norm = None
    build = staticmethod(models.mlp)

    def inputs(self, batch=4):
        return (torch.linspace(-1, 1, 12 * batch).reshape(batch, 1, 3, 4),)


def test_the_network_of_f_3():
    net = models.mlp()
    assert [tuple(m.weight.shape) for m in net.modules() if isinstance(m, nn.Linear)] == [
        (256, 784),
        (256, 256),
        (10, 256),
    ]
    assert len(layers_of(net, nn.ReLU)) == 2
    x = torch.randn(3, 784)
    first, second = layers_of(net, nn.Linear)
    assert torch.allclose(net.features(x), second(first(x).relu()).relu(), atol=1e-6)


@pytest.mark.parametrize(
    ("init", "std"),
    [(None, 784**-0.5 / 3**0.5), (nn.init.normal_, 1.0), (nn.init.xavier_uniform_, (2 / (784 + 256)) ** 0.5)],
)
def test_the_starts_of_table_7_3(init, std):
    assert layers_of(models.mlp(init=init), nn.Linear)[0].weight.std().item() == pytest.approx(std, rel=0.02)


def test_the_default_start_is_xavier_s():
    assert layers_of(models.mlp(), nn.Linear)[0].weight.std().item() == pytest.approx(
        (2 / (784 + 256)) ** 0.5, rel=0.02
    )
