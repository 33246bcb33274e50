"""Residual networks: ResNet-20/32 for CIFAR (B.2, C.1, D.2, F.2), ResNet-18/34/50 (D.2, E.1), variants (B.2, C.1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import Unpack

from ..operators import Operator
from ._sphereface import FaceStage, set_face_defaults
from .blocks import Conv, LayerFactory, Layers, Pool, Residual, Row
from .network import ConvNet, Options, StageOptions, choose_widths, get_preset

Shortcut: TypeAlias = Literal["conv", "plain", "pad"] | LayerFactory
Table: TypeAlias = Literal["B.2", "C.1", "D.2", "F.2"]

# Filters of the three stages for CIFAR, by table of Liu (2020).
WIDTHS: dict[Table, tuple[int, ...]] = {
    "B.2": (64, 96, 128),  # SphereNets
    "C.1": (96, 192, 384),  # decoupled networks; also the wider ResNet-32 of B.2
    "D.2": (64, 128, 256),  # MHE (E.2, for CoMHE, is the same)
    "F.2": (16, 32, 64),  # orthogonal training: the original widths
}
WIDTHS_IMAGENET = (64, 128, 256, 512)


def cifar_resnet(
    depth: int,
    num_classes: int | None = 100,
    *,
    table: Table = "F.2",
    widths: tuple[int, ...] | None = None,
    shortcut: Shortcut | None = None,
    **options: Unpack[Options],
) -> ConvNet:
    """Build ``[3×3, a], units×n, units×n, units×n`` and average pooling, with ``depth = 6n + 2`` (tables B.2, C.1, D.2, F.2).

    Args:
        depth: Number of layers including the classifier: 20, 32, 44, …
        num_classes: None makes it a feature extractor.
        table: The table of Liu (2020) that gives the filters. ``"D.2"`` equals E.2, the table for CoMHE.
        widths: Number of filters of the three stages instead of those of the table.
        shortcut: The shortcut where the shape changes. ``"plain"`` is a 1×1 convolution that no operator replaces, as in
            the code of the authors. ``"conv"`` is a 1×1 convolution with the network's factory and operator. A layer
            factory builds the 1×1 convolution instead. ``"pad"`` subsamples and appends zero channels, without parameters. None
            stands for ``"pad"`` with F.2, the original network, and for ``"plain"`` with the other tables.
        **options: See :class:`~hypersphere.models.Options`.

    Raises:
        ValueError: If ``depth``, ``table``, ``widths`` or ``shortcut`` is not accepted.

    >>> cifar_resnet(8, 10, width=0.1)(torch.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 10])
    """
    if depth < 8 or depth % 6 != 2:
        raise ValueError(f"depth must be 6n + 2 with n ≥ 1, got {depth}")
    filters = choose_widths(get_preset(WIDTHS, table), widths)
    shortcut = ("pad" if table == "F.2" else "plain") if shortcut is None else shortcut
    rows = [Conv(filters[0]), *_list_stages(filters, [depth // 6] * 3, shortcut)]
    return ConvNet(rows, num_classes, average=True, **options)


def resnet20(
    num_classes: int | None = 100,
    *,
    table: Table = "F.2",
    shortcut: Shortcut | None = None,
    **options: Unpack[StageOptions],
) -> ConvNet:
    """Build ResNet-20 of table F.2 with 0.27 M parameters. Options are those of :func:`cifar_resnet`; ``table`` gives other widths.

    >>> resnet20(10).features(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 64])
    """
    return cifar_resnet(20, num_classes, table=table, shortcut=shortcut, **options)


def resnet32(
    num_classes: int | None = 100,
    *,
    table: Table = "F.2",
    shortcut: Shortcut | None = None,
    **options: Unpack[StageOptions],
) -> ConvNet:
    """Build ResNet-32 of table F.2. ``table`` is ``"B.2"`` for SphereNets, ``"C.1"`` for decoupled networks, ``"D.2"`` for MHE.

    >>> resnet32(10, width=0.1)(torch.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 10])
    """
    return cifar_resnet(32, num_classes, table=table, shortcut=shortcut, **options)


def resnet18(
    num_classes: int | None = 1000, *, shortcut: Shortcut = "plain", **options: Unpack[StageOptions]
) -> ConvNet:
    """Build ResNet-18 of tables C.1 and D.2 with 11.69 M parameters; ``shortcut`` as in :func:`cifar_resnet`.

    >>> resnet18(10, width=0.05)(torch.zeros(1, 3, 64, 64)).shape
    torch.Size([1, 10])
    """
    return _build_imagenet_resnet(WIDTHS_IMAGENET, (2, 2, 2, 2), num_classes, shortcut, **options)


def resnet34(
    num_classes: int | None = 1000, *, shortcut: Shortcut = "plain", **options: Unpack[StageOptions]
) -> ConvNet:
    """Build ResNet-34 of table D.2 with 21.80 M parameters; ``shortcut`` as in :func:`cifar_resnet`.

    >>> resnet34(10, width=0.05)(torch.zeros(1, 3, 64, 64)).shape
    torch.Size([1, 10])
    """
    return _build_imagenet_resnet(WIDTHS_IMAGENET, (3, 4, 6, 3), num_classes, shortcut, **options)


def resnet50(
    num_classes: int | None = 1000, *, shortcut: Shortcut = "plain", **options: Unpack[StageOptions]
) -> ConvNet:
    """Build ResNet-50 of He et al. (2016, arXiv 1512.03385) with 25.56 M parameters, as used by Liu (2020) (E.1, table 6.7).

    Units are 1×1, 3×3 and 1×1 convolutions; the last has four times as many filters, and the first has the stride.
    ``widths`` are the filters of the 3×3 convolutions; ``shortcut`` as in :func:`cifar_resnet`.

    >>> resnet50(10, width=0.05)(torch.zeros(1, 3, 64, 64)).shape
    torch.Size([1, 10])
    """
    return _build_imagenet_resnet(
        WIDTHS_IMAGENET, (3, 4, 6, 3), num_classes, shortcut, stage=BottleneckStage, **options
    )


def sphere_resnet18(
    num_classes: int | None = 1000, *, version: Literal[1, 2] = 2, **options: Unpack[StageOptions]
) -> ConvNet:
    """Build the wide ResNet-18 of table B.2, by default with SphereConv.

    Version 1 uses the operator in the 1×1 shortcuts as well, version 2 does not (3.4.6). ``operator=None`` builds the
    baseline with the same filters. Liu (2020) trains version 1 with cosine W-Softmax and version 2 with softmax (B.2).

    >>> sphere_resnet18(10, width=0.05)(torch.zeros(1, 3, 64, 64)).shape
    torch.Size([1, 10])
    """
    if version not in (1, 2):
        raise ValueError(f"version must be 1 or 2, got {version!r}")
    if "conv" not in options:
        options.setdefault("operator", Operator())
    shortcut: Shortcut = "conv" if version == 1 else "plain"
    return _build_imagenet_resnet((256, 512, 768, 1024), (2, 2, 2, 2), num_classes, shortcut, **options)


def modified_resnet18(
    num_classes: int | None = 1000, *, widths: tuple[int, ...] | None = None, **options: Unpack[Options]
) -> ConvNet:
    """Build the modified ResNet-18 of table C.1: the stem of ResNet, then SphereFace's stages of 128 to 1024 filters.

    The stages have 1, 2, 3 and 0 residual units, 17 convolutions in total. The network uses batch normalization, and
    PReLU and initialization as in SphereFace (C.1.1). ``norm="none"`` gives the last column of table 4.6.

    >>> modified_resnet18(10, width=0.05)(torch.zeros(2, 3, 64, 64)).shape
    torch.Size([2, 10])
    """
    options.setdefault("norm", "batch")
    filters = choose_widths((128, 256, 512, 1024), widths)
    rows = [*_list_stem_rows(filters[0]), *map(FaceStage, filters, (1, 2, 3, 0))]
    return ConvNet(rows, num_classes, average=True, **set_face_defaults(options))


def _build_imagenet_resnet(
    table: Sequence[int],
    units: Sequence[int],
    num_classes: int | None,
    shortcut: Shortcut,
    *,
    stage: "type[ResidualStage] | None" = None,
    widths: tuple[int, ...] | None = None,
    **options: Unpack[Options],
) -> ConvNet:
    filters = choose_widths(table, widths)
    rows = [*_list_stem_rows(filters[0]), *_list_stages(filters, units, shortcut, stage)]
    return ConvNet(rows, num_classes, average=True, **options)


@dataclass(frozen=True)
class ResidualStage(Row):
    """``[3×3, filters; 3×3, filters]×times``: units ``ReLU(conv(ReLU(conv(x))) + shortcut(x))``; the first has the stride."""

    filters: int
    times: int
    stride: int
    shortcut: Shortcut
    name = "stage"
    expansion: ClassVar[int] = 1  # output channels of a unit, as a multiple of its filters

    def build(self, layers: Layers, channels: int) -> tuple[nn.Module, int]:
        """Build the units. Their convolutions have no biases, even if no normalization follows."""
        filters = self.expansion * layers.scaled(self.filters)
        first = self._build_unit(layers, channels, filters, self.stride)
        return nn.Sequential(
            first, *(self._build_unit(layers, filters, filters, 1) for _ in range(self.times - 1))
        ), filters

    def size(self, size: int) -> int:
        """Return the size divided by the stride, rounded up."""
        return -(-size // self.stride)

    def _build_unit(self, layers: Layers, channels: int, filters: int, stride: int) -> nn.Module:
        body = nn.Sequential(
            layers.convolution(channels, filters, 3, stride, bias=False),
            layers.convolution(filters, filters, 3, bias=False, activate=False),
        )
        return Residual(body, self._build_shortcut(layers, channels, filters, stride), layers.nonlinearity(filters))

    def _build_shortcut(self, layers: Layers, channels: int, filters: int, stride: int) -> nn.Module | None:
        if channels == filters and stride == 1:
            return None
        if self.shortcut == "pad":
            return PadShortcut(filters - channels, stride)
        if self.shortcut != "conv":
            layers = layers.plain(nn.Conv2d if isinstance(self.shortcut, str) else self.shortcut)
        return layers.convolution(channels, filters, 1, stride, bias=False, activate=False)


@dataclass(frozen=True)
class BottleneckStage(ResidualStage):
    """``[1×1, filters; 3×3, filters; 1×1, 4·filters]×times``; the first 1×1 has the stride."""

    expansion = 4

    def _build_unit(self, layers: Layers, channels: int, filters: int, stride: int) -> nn.Module:
        narrow = filters // self.expansion
        body = nn.Sequential(
            layers.convolution(channels, narrow, 1, stride, bias=False),
            layers.convolution(narrow, narrow, 3, bias=False),
            layers.convolution(narrow, filters, 1, bias=False, activate=False),
        )
        return Residual(body, self._build_shortcut(layers, channels, filters, stride), layers.nonlinearity(filters))


class PadShortcut(nn.Module):
    """A shortcut without parameters that takes every ``stride``-th position and appends zero channels.

    Args:
        channels: Number of zero channels.
        stride: Step between the positions.
    """

    def __init__(self, channels: int, stride: int):
        super().__init__()
        self.channels = channels
        self.stride = stride

    def forward(self, x: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch filters rows columns"]:
        """Return the subsampled and padded input."""
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.channels))


def _list_stem_rows(filters: int) -> list[Row]:
    return [Conv(filters, kernel=7, stride=2), Pool(3)]


def _list_stages(
    widths: Sequence[int], units: Sequence[int], shortcut: Shortcut, stage: type[ResidualStage] | None = None
) -> list[Row]:
    if isinstance(shortcut, str) and shortcut not in ("conv", "plain", "pad"):
        raise ValueError(f"shortcut must be 'conv', 'plain', 'pad' or a layer factory, got {shortcut!r}")
    make_stage = ResidualStage if stage is None else stage
    strides = [1] + [2] * (len(widths) - 1)
    return [make_stage(n, times, stride, shortcut) for n, times, stride in zip(widths, units, strides, strict=True)]
