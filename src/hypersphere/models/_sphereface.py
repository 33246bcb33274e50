"""SphereFace-4/10/20/36/64 (table 2.7): convolutions of stride 2 and residual units; PReLU, no normalization."""

from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor, nn
from typing_extensions import Unpack

from .blocks import Conv, Layers, Residual, Row
from .network import ConvNet, Options, StageOptions, choose_widths, get_preset

# depth → residual units after the convolution of stride 2, in Conv1.x … Conv4.x
UNITS = {4: (0, 0, 0, 0), 10: (0, 1, 2, 0), 20: (1, 2, 4, 1), 36: (2, 4, 8, 2), 64: (3, 8, 16, 3)}
FILTERS = (64, 128, 256, 512)


@dataclass(frozen=True)
class FaceStage(Row):
    """``[3×3, filters] of stride 2`` and residual units ``x + PReLU(conv(PReLU(conv(x))))`` without biases.

    Liu (2020) does not state the initialization. The released model of SphereFace uses N(0, 0.01²) in the units, so a deep
    stack starts near the identity. If the caller sets another ``init``, it is used in the units as well.
    """

    filters: int
    units: int
    name = "stage"

    def build(self, layers: Layers, channels: int) -> tuple[nn.Module, int]:
        """Build the convolution that changes the shape, then units that keep it."""
        n = layers.scaled(self.filters)
        unit_layers = replace(layers, init=_small_normal) if layers.init is _xavier else layers
        units = (
            Residual(nn.Sequential(*(unit_layers.convolution(n, n, 3, bias=False) for _ in range(2))))
            for _ in range(self.units)
        )
        return nn.Sequential(layers.convolution(channels, n, 3, stride=2), *units), n

    def size(self, size: int) -> int:
        """Return half of the size, rounded up."""
        return Conv(self.filters, stride=2).size(size)


def sphereface(
    depth: Literal[4, 10, 20, 36, 64],
    num_classes: int | None = None,
    *,
    widths: tuple[int, ...] | None = None,
    **options: Unpack[Options],
) -> ConvNet:
    """Build SphereFace of table 2.7, a feature extractor of 512 dimensions unless ``num_classes`` is given.

    Faces are crops of 112×96 pixels, ``(x − 127.5)/128`` (2.3.6); pass ``input_size=`` for another size. The embedding has
    no nonlinearity (A.1).

    Args:
        depth: Number of convolutions.
        num_classes: None makes it a feature extractor.
        widths: Number of filters of the four stages instead of those of the table.
        **options: See :class:`~hypersphere.models.Options`. By default PReLU and no normalization.

    Raises:
        ValueError: If there is no network of this depth, or ``widths`` are not four numbers.

    >>> net = sphereface(10, width=0.25)
    >>> net(torch.zeros(1, 3, 112, 96)).shape
    torch.Size([1, 512])
    """
    units = get_preset(UNITS, depth, "depth")
    options.setdefault("input_size", (112, 96))
    filters = choose_widths(FILTERS, widths)
    return ConvNet(list(map(FaceStage, filters, units)), num_classes, fc=[512], **set_face_defaults(options))


def sphereface4(num_classes: int | None = None, **options: Unpack[StageOptions]) -> ConvNet:
    """Build SphereFace-4 of table 2.7. Options of :func:`sphereface`.

    >>> sphereface4(None, width=0.1, input_size=32).feature_dim
    512
    """
    return sphereface(4, num_classes, **options)


def sphereface10(num_classes: int | None = None, **options: Unpack[StageOptions]) -> ConvNet:
    """Build SphereFace-10 of table 2.7. Options of :func:`sphereface`.

    >>> sphereface10(None, width=0.1, input_size=32).feature_dim
    512
    """
    return sphereface(10, num_classes, **options)


def sphereface20(num_classes: int | None = None, **options: Unpack[StageOptions]) -> ConvNet:
    """Build SphereFace-20 of table 2.7. Options of :func:`sphereface`.

    >>> sphereface20(None, width=0.1, input_size=32).feature_dim
    512
    """
    return sphereface(20, num_classes, **options)


def sphereface36(num_classes: int | None = None, **options: Unpack[StageOptions]) -> ConvNet:
    """Build SphereFace-36 of table 2.7. Options of :func:`sphereface`.

    >>> sphereface36(None, width=0.1, input_size=32).feature_dim
    512
    """
    return sphereface(36, num_classes, **options)


def sphereface64(num_classes: int | None = None, **options: Unpack[StageOptions]) -> ConvNet:
    """Build SphereFace-64 of table 2.7. Options of :func:`sphereface`.

    >>> sphereface64(None, width=0.1, input_size=32).feature_dim
    512
    """
    return sphereface(64, num_classes, **options)


def set_face_defaults(options: Options) -> Options:
    """Set PReLU, no normalization, and the initialization of the released model: variance 1/fan_in outside residual units."""
    options.setdefault("activation", "prelu")
    options.setdefault("norm", "none")
    options.setdefault("init", _xavier)
    return options


def _xavier(weight: Tensor) -> Tensor:
    """Initialize uniformly with variance 1/fan_in, which Caffe calls xavier."""
    return nn.init.kaiming_uniform_(weight, nonlinearity="linear")


def _small_normal(weight: Tensor) -> Tensor:
    return nn.init.normal_(weight, std=0.01)
