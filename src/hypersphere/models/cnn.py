"""Plain CNNs: stages of 3×3 convolutions and 2×2 max pooling, then fully connected layers."""

from typing import Literal, TypeAlias

from typing_extensions import Unpack

from .blocks import Conv, Pool
from .network import ConvNet, Options, StageOptions, choose_widths, get_preset

Table: TypeAlias = Literal["B.1", "C.1", "C.1 adversarial", "C.4", "D.1", "E.3", "F.1"]

# table of Liu (2020) → filters of Conv1.x, Conv2.x, Conv3.x, and the units of the fully connected layers
WIDTHS: dict[Table, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "B.1": ((64, 96, 128), (256,)),  # CNN-3, 9, 18, 45, 60, 69 (SphereNets)
    "C.1": ((64, 128, 256), (512,)),  # CNN-9 (decoupled networks)
    "C.1 adversarial": ((32, 64, 128), (256,)),  # CNN-9 under attack; trained without batch normalization
    "C.4": ((32, 64, 128), (256, 2)),  # CNN-6 with 2-D features for MNIST (from the text of the section)
    "D.1": ((64, 128, 256), (256,)),  # CNN-6, 9, 15 (MHE; E.1, for CoMHE, is the same)
    "E.3": ((32, 64, 64), (64,)),  # CNN-3, 9 (comparison of ways to minimize energy)
    "F.1": ((64, 64, 64), (64,)),  # CNN-6, 9 (orthogonal training)
}


def plain_cnn(
    depth: int,
    num_classes: int | None = 10,
    *,
    table: Table = "B.1",
    widths: tuple[int, ...] | None = None,
    **options: Unpack[Options],
) -> ConvNet:
    """Build ``[3×3, a]×n, pool, [3×3, b]×n, pool, [3×3, c]×n, pool, FC`` with ``n = depth/3`` (tables B.1 to F.1).

    Args:
        depth: Number of convolutions, a multiple of 3.
        num_classes: None makes it a feature extractor.
        table: The table of Liu (2020) that gives the filters and the fully connected units. ``"D.1"`` equals E.1, the
            table for CoMHE.
        widths: Number of filters of the three stages instead of those of the table.
        **options: See :class:`~hypersphere.models.Options`. By default batch normalization, ReLU and He initialization.

    Raises:
        ValueError: If ``depth``, ``table`` or ``widths`` is not accepted.

    >>> net = plain_cnn(9, 10, table="C.1", width=0.25)
    >>> net(torch.zeros(1, 3, 32, 32)).shape, net.feature_dim
    (torch.Size([1, 10]), 512)
    """
    if depth < 3 or depth % 3:
        raise ValueError(f"depth must be a multiple of 3, got {depth}")
    filters, fc = get_preset(WIDTHS, table)
    rows = [row for filters in choose_widths(filters, widths) for row in (Conv(filters, depth // 3), Pool())]
    return ConvNet(rows, num_classes, fc=fc, **options)


def cnn3(num_classes: int | None = 10, *, table: Table = "B.1", **options: Unpack[StageOptions]) -> ConvNet:
    """Build CNN-3 of table B.1; also ``table="E.3"``. Options of :func:`plain_cnn`.

    >>> cnn3(10, width=0.05, input_size=8)(torch.zeros(1, 3, 8, 8)).shape
    torch.Size([1, 10])
    """
    return plain_cnn(3, num_classes, table=table, **options)


def cnn6(num_classes: int | None = 10, *, table: Table = "D.1", **options: Unpack[StageOptions]) -> ConvNet:
    """Build CNN-6 of table D.1; also ``table="F.1"``, and ``"C.4"`` for 2-D features. Options of :func:`plain_cnn`.

    >>> cnn6(10, width=0.05, input_size=8)(torch.zeros(1, 3, 8, 8)).shape
    torch.Size([1, 10])
    """
    return plain_cnn(6, num_classes, table=table, **options)


def cnn9(num_classes: int | None = 10, *, table: Table = "B.1", **options: Unpack[StageOptions]) -> ConvNet:
    """Build CNN-9 of table B.1; also of C.1, ``"C.1 adversarial"``, D.1, E.3 and F.1; see :func:`plain_cnn`.

    >>> cnn9(num_classes=100, table="F.1", norm=None, width=0.5)(torch.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 100])
    """
    return plain_cnn(9, num_classes, table=table, **options)


def cnn10(
    num_classes: int | None = 1000, *, widths: tuple[int, ...] | None = None, **options: Unpack[Options]
) -> ConvNet:
    """Build CNN-10 of table F.1, for ImageNet: a 7×7 convolution and a 3×3 pooling of stride 2 before three stages.

    ``widths`` are the filters of the stages, 64, 128, 256 by default.

    >>> cnn10(10, width=0.05, input_size=64)(torch.zeros(1, 3, 64, 64)).shape
    torch.Size([1, 10])
    """
    stages = [row for filters in choose_widths((64, 128, 256), widths) for row in (Conv(filters, 3), Pool())]
    options.setdefault("input_size", 224)
    return ConvNet([Conv(64, kernel=7, stride=2), Pool(3), *stages], num_classes, fc=[256], **options)


def cnn15(num_classes: int | None = 10, *, table: Table = "D.1", **options: Unpack[StageOptions]) -> ConvNet:
    """Build CNN-15 of table D.1. Options of :func:`plain_cnn`.

    >>> cnn15(10, width=0.05, input_size=8)(torch.zeros(1, 3, 8, 8)).shape
    torch.Size([1, 10])
    """
    return plain_cnn(15, num_classes, table=table, **options)


def cnn18(num_classes: int | None = 10, *, table: Table = "B.1", **options: Unpack[StageOptions]) -> ConvNet:
    """Build CNN-18 of table B.1, the network of table 3.3 (``activation="none"``: without ReLU); see :func:`plain_cnn`.

    >>> cnn18(10, width=0.05, input_size=8)(torch.zeros(1, 3, 8, 8)).shape
    torch.Size([1, 10])
    """
    return plain_cnn(18, num_classes, table=table, **options)


def cnn45(num_classes: int | None = 10, *, table: Table = "B.1", **options: Unpack[StageOptions]) -> ConvNet:
    """Build CNN-45 of table B.1. Options of :func:`plain_cnn`.

    >>> cnn45(10, width=0.05, input_size=8)(torch.zeros(1, 3, 8, 8)).shape
    torch.Size([1, 10])
    """
    return plain_cnn(45, num_classes, table=table, **options)


def cnn60(num_classes: int | None = 10, *, table: Table = "B.1", **options: Unpack[StageOptions]) -> ConvNet:
    """Build CNN-60 of table B.1. Options of :func:`plain_cnn`.

    >>> cnn60(10, width=0.05, input_size=8)(torch.zeros(1, 3, 8, 8)).shape
    torch.Size([1, 10])
    """
    return plain_cnn(60, num_classes, table=table, **options)


def cnn69(num_classes: int | None = 10, *, table: Table = "B.1", **options: Unpack[StageOptions]) -> ConvNet:
    """Build CNN-69 of table B.1, the ultra-deep plain network of figure 3.3(d). Options of :func:`plain_cnn`.

    >>> cnn69(10, width=0.05, input_size=8)(torch.zeros(1, 3, 8, 8)).shape
    torch.Size([1, 10])
    """
    return plain_cnn(69, num_classes, table=table, **options)


def cnn4(num_classes: int | None = 64, *, widths: tuple[int, ...] | None = None, **options: Unpack[Options]) -> ConvNet:
    """Build CNN-4 of table F.3 for few-shot recognition: ``[3×3, 64], pool`` four times, then the classifier.

    The classifier sees the flattened feature map. Mini-ImageNet has 84×84 images (1600 features) and 64 classes for
    pretraining; for Omniglot pass ``in_channels=1, input_size=28`` (64 features). Every episode has its own classifier, so
    ``cnn4(None)`` builds the backbone alone. ``widths`` are the filters of the four stages.

    >>> cnn4(None).feature_dim, cnn4(None, in_channels=1, input_size=28).feature_dim
    (1600, 64)
    """
    options.setdefault("input_size", 84)
    filters = choose_widths((64,) * 4, widths)
    return ConvNet([row for n in filters for row in (Conv(n), Pool())], num_classes, **options)
