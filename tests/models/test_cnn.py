import typing
from typing import ClassVar

import pytest
import torch
from torch import nn

from hypersphere import models
from hypersphere.models import cnn

from .contract import CONVOLUTIONS, ImageContract, layers_of


class TestCNN9(ImageContract):
    small: ClassVar = {"width": 1 / 16, "input_size": 8}
    feature_dim = 256
    build = staticmethod(models.cnn9)


class TestCNN10(ImageContract):
    small: ClassVar = {"width": 1 / 16, "input_size": 32}
    size = (32, 32)
    feature_dim = 256
    build = staticmethod(models.cnn10)

    def test_the_table(self):
        with torch.device("meta"):
            net = models.cnn10()
        convs = [(c.out_channels, c.kernel_size[0], c.stride[0]) for c in layers_of(net, nn.Conv2d)]
        assert convs == [(64, 7, 2), *[(64, 3, 1)] * 3, *[(128, 3, 1)] * 3, *[(256, 3, 1)] * 3]
        assert net.fc[0].linear.in_features == 256 * 7 * 7
        assert net.classifier.out_features == 1000


# name, table → filters per stage, convolutions per stage, fully connected units: from Liu (2020), not from the code
TABLES = [
    ("cnn3", None, (64, 96, 128), 1, 256),
    ("cnn3", "B.1", (64, 96, 128), 1, 256),
    ("cnn3", "E.3", (32, 64, 64), 1, 64),
    ("cnn6", None, (64, 128, 256), 2, 256),
    ("cnn6", "F.1", (64, 64, 64), 2, 64),
    ("cnn9", None, (64, 96, 128), 3, 256),
    ("cnn9", "C.1", (64, 128, 256), 3, 512),
    ("cnn9", "C.1 adversarial", (32, 64, 128), 3, 256),
    ("cnn9", "D.1", (64, 128, 256), 3, 256),
    ("cnn9", "E.3", (32, 64, 64), 3, 64),
    ("cnn9", "F.1", (64, 64, 64), 3, 64),
    ("cnn15", None, (64, 128, 256), 5, 256),
    ("cnn18", None, (64, 96, 128), 6, 256),
    ("cnn45", None, (64, 96, 128), 15, 256),
    ("cnn60", None, (64, 96, 128), 20, 256),
    ("cnn69", None, (64, 96, 128), 23, 256),
]


@pytest.mark.parametrize(("name", "table", "filters", "times", "units"), TABLES)
def test_the_tables(name, table, filters, times, units):
    with torch.device("meta"):
        net = getattr(models, name)(100, **({} if table is None else {"table": table}))
    convs = layers_of(net, CONVOLUTIONS)
    assert [c.out_channels for c in convs] == [n for n in filters for _ in range(times)]
    assert [c.in_channels for c in convs[1:]] == [c.out_channels for c in convs[:-1]]
    assert len(convs) == int(name.removeprefix("cnn"))
    assert all(c.kernel_size == (3, 3) and c.stride == (1, 1) for c in convs)
    assert [type(m).__name__ for m in net.body] == ["Sequential", "MaxPool2d"] * 3
    assert net.fc[0].linear.weight.shape == (units, filters[2] * 4 * 4)
    assert net.classifier.weight.shape == (100, units)


def test_parameters_of_cnn6_by_hand():
    # F.1: 27·64 + 5·9·64·64 weights of convolutions, 2·6·64 of batch normalization, 1024·64 + 64 of FC1,
    # 64·100 + 100 of the classifier
    assert sum(p.numel() for p in models.cnn6(100, table="F.1").parameters()) == 1728 + 184320 + 768 + 65600 + 6500


def test_the_network_of_c_4():
    net = models.cnn6(10, table="C.4", in_channels=1, input_size=28)
    assert [c.out_channels for c in layers_of(net, nn.Conv2d)] == [32, 32, 64, 64, 128, 128]
    assert [m.out_features for m in net.modules() if isinstance(m, nn.Linear)] == [256, 2, 10]
    assert net.features(torch.zeros(3, 1, 28, 28)).shape == (3, 2)


def test_the_start_is_he_s():
    net = models.cnn9()
    for conv in layers_of(net, nn.Conv2d)[1:]:
        assert conv.weight.std().item() == pytest.approx((2 / (conv.in_channels * 9)) ** 0.5, rel=0.03)


def test_signals_keep_their_size_through_a_deep_plain_network():
    """With He initialization the second moment stays bounded through 45 layers without normalization."""
    net = models.cnn45(norm=None, width=0.5, input_size=16)
    x = torch.randn(2, 3, 16, 16)
    assert 1e-2 < net.body(x).pow(2).mean().item() / x.pow(2).mean().item() < 1e2


@pytest.mark.parametrize("depth", [0, -3, 4, 10])
def test_refuses_a_depth(depth):
    with pytest.raises(ValueError, match="depth must be a multiple of 3"):
        models.plain_cnn(depth)


def test_widths():
    net = models.cnn9(10, widths=(16, 32, 48))
    assert [c.out_channels for c in layers_of(net, nn.Conv2d)] == [16] * 3 + [32] * 3 + [48] * 3
    with pytest.raises(ValueError, match=r"widths must be 3 integers ≥ 1, one per stage, got \(16, 32\)"):
        models.cnn9(widths=(16, 32))
    assert set(typing.get_args(cnn.Table)) == set(cnn.WIDTHS)


@pytest.mark.untyped
def test_refuses_a_table():
    with pytest.raises(ValueError, match=r"table must be one of 'B.1', .*, 'F.1', got 'G.1'"):
        models.cnn9(table="G.1")


class TestCNN4(ImageContract):
    small: ClassVar = {"width": 1 / 16, "input_size": 20}
    size = (20, 20)
    feature_dim = 4
    build = staticmethod(models.cnn4)


def test_cnn4_has_the_layers_of_table_f_3():
    with torch.device("meta"):
        net = models.cnn4()
    assert [(c.in_channels, c.out_channels, c.kernel_size) for c in layers_of(net, nn.Conv2d)] == [
        (3, 64, (3, 3)),
        *[(64, 64, (3, 3))] * 3,
    ]
    assert [type(m).__name__ for m in net.body] == ["Sequential", "MaxPool2d"] * 4
    assert net.classifier.weight.shape == (64, 1600)


def test_cnn4_for_omniglot():
    assert models.cnn4(5, in_channels=1, input_size=28)(torch.zeros(2, 1, 28, 28)).shape == (2, 5)
