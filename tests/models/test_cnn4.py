from typing import ClassVar

import torch
from torch import nn

from hypersphere import models

from .contract import ImageContract, layers_of


class TestCNN4(ImageContract):
    small: ClassVar = {"width": 1 / 16, "input_size": 20}
    size = (20, 20)
    feature_dim = 4
    build = staticmethod(models.cnn4)


def test_table_f_3():
    with torch.device("meta"):
        net = models.cnn4()
    assert [(c.in_channels, c.out_channels, c.kernel_size) for c in layers_of(net, nn.Conv2d)] == [
        (3, 64, (3, 3)),
        *[(64, 64, (3, 3))] * 3,
    ]
    assert [type(m).__name__ for m in net.body] == ["Sequential", "MaxPool2d"] * 4
    assert net.classifier.weight.shape == (64, 1600)


def test_omniglot():
    assert models.cnn4(5, in_channels=1, input_size=28)(torch.zeros(2, 1, 28, 28)).shape == (2, 5)
