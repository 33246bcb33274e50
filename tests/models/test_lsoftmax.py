from typing import ClassVar

import pytest
import torch
from torch import nn

from hypersphere import models

from .contract import ImageContract, layers_of


class TestMNIST2D(ImageContract):
    small: ClassVar = {"width": 1 / 8, "input_size": 8}
    channels = 1
    feature_dim = 2
    activation = nn.PReLU
    build = staticmethod(models.lsoftmax_mnist_2d)


class TestLFW(ImageContract):
    small: ClassVar = {"width": 1 / 16, "input_size": (16, 24)}
    size = (16, 24)
    feature_dim = 512
    activation = nn.PReLU
    build = staticmethod(models.lsoftmax_lfw)


# table 2.1 by column: filters, kernel, pools (after how many convolutions), stride of the first, FC, flattened map
COLUMNS = {
    "lsoftmax_mnist_2d": ([32] * 2 + [64] * 2 + [128] * 2, 5, (2, 4, 6), 1, 2, 128 * 3 * 3),
    "lsoftmax_mnist": ([64] * 10, 3, (4, 7, 10), 1, 256, 64 * 3 * 3),
    "lsoftmax_cifar10": ([64] * 5 + [96] * 4 + [128] * 4, 3, (5, 9, 13), 1, 256, 128 * 4 * 4),
    "lsoftmax_cifar100": ([96] * 5 + [192] * 4 + [384] * 4, 3, (5, 9, 13), 1, 512, 384 * 4 * 4),
    "lsoftmax_lfw": ([64] * 5 + [256] * 12, 3, (5, 9, 13), 2, 512, 256 * 7 * 6),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_table_2_1(name):
    filters, kernel, pools, stride, features, flat = COLUMNS[name]
    with torch.device("meta"):
        net = getattr(models, name)()
    convs = layers_of(net, nn.Conv2d)
    assert [c.out_channels for c in convs] == filters
    assert {c.kernel_size for c in convs} == {(kernel, kernel)}
    assert [c.stride[0] for c in convs] == [stride] + [1] * (len(convs) - 1)
    order = [m for m in net.body.modules() if isinstance(m, (nn.Conv2d, nn.MaxPool2d))]
    assert (
        tuple(
            sum(isinstance(m, nn.Conv2d) for m in order[:i]) for i, m in enumerate(order) if isinstance(m, nn.MaxPool2d)
        )
        == pools
    )
    assert net.fc[0].linear.weight.shape == (features, flat)
    assert len(layers_of(net, nn.PReLU)) == len(layers_of(net, nn.BatchNorm2d)) == len(convs)


def test_the_data_s_own_shape_and_classes():
    assert models.lsoftmax_mnist(width=0.1)(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    assert models.lsoftmax_cifar100(width=0.1)(torch.zeros(2, 3, 32, 32)).shape == (2, 100)
