"""The networks of the L-Softmax experiments (table 2.1): batch normalization, PReLU, He initialization (2.2.7)."""

from collections.abc import Sequence

from typing_extensions import Unpack

from .blocks import Conv, Pool, Row
from .network import ConvNet, Options


def lsoftmax_mnist_2d(num_classes: int | None = 10, **options: Unpack[Options]) -> ConvNet:
    """Build the network "MNIST (for figure 2.2)" of table 2.1: 5×5 convolutions, ``[32]×2, [64]×2, [128]×2``, 2-D features.

    >>> lsoftmax_mnist_2d(width=0.25).features(torch.zeros(5, 1, 28, 28)).shape
    torch.Size([5, 2])
    """
    rows = [row for filters in (32, 64, 128) for row in (Conv(filters, 2, kernel=5), Pool())]
    return _build_mnist(rows, num_classes, 2, options)


def lsoftmax_mnist(num_classes: int | None = 10, **options: Unpack[Options]) -> ConvNet:
    """Build the network "MNIST" of table 2.1: ten 3×3 convolutions of 64 filters, 256 features.

    >>> lsoftmax_mnist(10, width=0.1)(torch.zeros(1, 1, 28, 28)).shape
    torch.Size([1, 10])
    """
    return _build_mnist(
        [Conv(64), Conv(64, 3), Pool(), Conv(64, 3), Pool(), Conv(64, 3), Pool()], num_classes, 256, options
    )


def lsoftmax_cifar10(num_classes: int | None = 10, **options: Unpack[Options]) -> ConvNet:
    """Build the network "CIFAR10/CIFAR10+" of table 2.1: ``[64]×5, [96]×4, [128]×4``, 256 features.

    >>> lsoftmax_cifar10(10, width=0.1)(torch.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 10])
    """
    return _build_network(_list_vgg_rows(64, (64, 96, 128)), num_classes, 256, options)


def lsoftmax_cifar100(num_classes: int | None = 100, **options: Unpack[Options]) -> ConvNet:
    """Build the network "CIFAR100" of table 2.1: ``[96]×5, [192]×4, [384]×4``, 512 features.

    >>> lsoftmax_cifar100(100, width=0.1)(torch.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 100])
    """
    return _build_network(_list_vgg_rows(96, (96, 192, 384)), num_classes, 512, options)


def lsoftmax_lfw(num_classes: int | None = 10575, **options: Unpack[Options]) -> ConvNet:
    """Build the network "LFW" of table 2.1: stride 2, ``[64]×4, [256]×4, [256]×4, [256]×4``, 512 features, 10,575 people.

    The table does not state the size of the faces; it is 112×96 here, as for SphereFace.

    >>> lsoftmax_lfw(None, width=0.05).feature_dim
    512
    """
    options.setdefault("input_size", (112, 96))
    return _build_network([*_list_vgg_rows(64, (64, 256, 256), stride=2), Conv(256, 4)], num_classes, 512, options)


def _list_vgg_rows(first: int, stages: Sequence[int], stride: int = 1) -> list[Row]:
    return [Conv(first, stride=stride), *(row for filters in stages for row in (Conv(filters, 4), Pool()))]


def _build_mnist(rows: Sequence[Row], num_classes: int | None, features: int, options: Options) -> ConvNet:
    options.setdefault("in_channels", 1)
    options.setdefault("input_size", 28)
    return _build_network(rows, num_classes, features, options)


def _build_network(rows: Sequence[Row], num_classes: int | None, features: int, options: Options) -> ConvNet:
    options.setdefault("activation", "prelu")
    return ConvNet(rows, num_classes, fc=[features], **options)
