"""Layer factories, and the rows of the architecture tables of Liu (2020).

A table such as B.1 has rows like ``[3×3, 64]×3`` and ``2×2 max pooling, stride 2``. Here each row is a small object, so an
architecture is a list that reads like its table. The plain, spherical and decoupled versions of a network have the same
rows; they differ in the operator or the layer factories.
"""

import copy
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias

from jaxtyping import Float
from torch import Tensor, nn

from ..operators import Operator, SphereNorm, convert

LayerFactory: TypeAlias = Callable[..., nn.Module]
HeadFactory: TypeAlias = Callable[[int, int], nn.Module]
Init: TypeAlias = Callable[[Tensor], object]
NormOption: TypeAlias = LayerFactory | Literal["batch", "sphere", "sphere_rescaled", "sphere_batch", "none"] | None
ActivationOption: TypeAlias = LayerFactory | Literal["relu", "prelu", "leaky_relu", "none"] | None
InitOption: TypeAlias = Init | Literal["he", "xavier", "normal"] | None


def he_normal(weight: Tensor) -> Tensor:
    """Draw a weight in place from N(0, 2/fan_in), the initialization that Liu (2020) uses for CNNs (2.2.7, C.1, 7.5.3).

    >>> round(he_normal(torch.empty(1000, 50)).std().item(), 2)
    0.2
    """
    return nn.init.kaiming_normal_(weight, nonlinearity="relu")


def make_layers(
    *,
    conv: LayerFactory = nn.Conv2d,
    linear: LayerFactory = nn.Linear,
    norm: NormOption = "batch",
    activation: ActivationOption = "relu",
    init: InitOption = "he",
    width: float = 1.0,
    operator: Operator | None = None,
    classifier: HeadFactory = nn.Linear,
    batch: LayerFactory = nn.BatchNorm2d,
) -> "Layers":
    """Return :class:`Layers` from the options of a model. Normalization, activation and initialization may be names.

    Args:
        conv: Factory with the signature of :class:`torch.nn.Conv2d`.
        linear: Factory with the signature of :class:`torch.nn.Linear`.
        norm: ``"batch"`` uses the factory ``batch``. ``"sphere"`` is :class:`~hypersphere.operators.SphereNorm`, which
            replaces a layer by its spherical version; ``"sphere_rescaled"`` adds learned β and γ, and ``"sphere_batch"``
            adds BatchNorm. ``"none"`` or None omits normalization. A custom factory takes the number of channels.
        activation: ``"relu"``, ``"prelu"`` with one slope per channel, ``"leaky_relu"`` of slope 0.1 (D.7), ``"none"``,
            or a factory without arguments.
        init: ``"he"`` (:func:`he_normal`), ``"xavier"`` (Glorot's uniform initialization), ``"normal"`` (N(0, 1), table
            7.3), or a function that draws a weight in place. None keeps the initialization of the layer.
        width: Factor by which every hidden width is multiplied.
        operator: The operator that every hidden layer computes. None keeps the layers of the factories.
        classifier: Factory of the classifier, called with ``(feature_dim, num_classes)``.
        batch: The BatchNorm class for the shape of the model's feature maps.

    Raises:
        ValueError: If a name is unknown, or ``width`` is not positive.

    >>> make_layers(activation="leaky_relu").nonlinearity(8)
    LeakyReLU(negative_slope=0.1)
    """
    named: dict[str, Any] = {
        "norm": {
            "batch": batch,
            "sphere": SphereNorm,
            "sphere_rescaled": partial(SphereNorm, rescale=True),
            "sphere_batch": partial(SphereNorm, batchnorm=True),
            "none": None,
        },
        "activation": {"relu": nn.ReLU, "prelu": nn.PReLU, "leaky_relu": partial(nn.LeakyReLU, 0.1), "none": None},
        "init": {"he": he_normal, "xavier": nn.init.xavier_uniform_, "normal": nn.init.normal_},
    }
    made: dict[str, Any] = {}
    for option, value in (("norm", norm), ("activation", activation), ("init", init)):
        known = named[option]
        if isinstance(value, str) and value not in known:
            accepted = ", ".join(map(repr, known))
            raise ValueError(f"{option} must be one of {accepted}, a factory or None, got {value!r}")
        made[option] = known[value] if isinstance(value, str) else value
    # The layers of one network share the modules of its operator. Two networks must not, hence the copy.
    return Layers(conv, linear, width=width, operator=copy.deepcopy(operator), classifier=classifier, **made)


@dataclass(frozen=True)
class Layers:
    """The factories of a network's layers and classifier, the width multiplier, and the operator of the hidden layers.

    ``conv`` and ``linear`` have the signatures of :class:`torch.nn.Conv2d` and :class:`torch.nn.Linear`. ``norm`` takes
    the number of channels, or the layer itself if it is a :class:`~hypersphere.operators.SphereNorm`. ``activation``
    takes no arguments, except that ``nn.PReLU`` gets one slope per channel. ``norm``, ``activation`` and ``init`` may be
    None: no normalization, no nonlinearity, and the layer's own initialization. :func:`make_layers` also accepts names.

    >>> Layers(norm=None, width=0.5).convolutions(3, [16, 32], kernel=3)[0](torch.zeros(1, 3, 8, 8)).shape
    torch.Size([1, 16, 8, 8])
    """

    conv: LayerFactory = nn.Conv2d
    linear: LayerFactory = nn.Linear
    norm: LayerFactory | None = nn.BatchNorm2d
    activation: LayerFactory | None = nn.ReLU
    init: Init | None = he_normal
    width: float = 1.0
    operator: Operator | None = None
    classifier: HeadFactory = nn.Linear

    def __post_init__(self) -> None:
        if not self.width > 0:
            raise ValueError(f"width must be a number > 0, got {self.width!r}")

    def scaled(self, channels: int) -> int:
        """Return the number of channels times the width multiplier, rounded, at least one."""
        return max(1, round(channels * self.width))

    def convolution(
        self,
        channels: int,
        filters: int,
        kernel: int | tuple[int, int],
        stride: int = 1,
        *,
        activate: bool = True,
        bias: bool | None = None,
        padding: int | None = None,
        groups: int = 1,
    ) -> nn.Sequential:
        """Build a convolution with normalization and activation.

        By default the layer has a bias only if no normalization follows. The default padding preserves the size for odd
        kernels and stride 1.
        """
        bias = (self.norm is None or self.spherical_norm) if bias is None else bias
        if padding is None:
            assert isinstance(kernel, int)
            padding = (kernel - 1) // 2
        grouped = {} if groups == 1 else {"groups": groups}  # a custom factory may not accept groups
        layer = self.conv(channels, filters, kernel, stride=stride, padding=padding, bias=bias, **grouped)
        return self._build_unit("conv", layer, filters, norm=True, activate=activate)

    def convolutions(
        self, channels: int, filters: Iterable[int], kernel: int, stride: int = 1
    ) -> tuple[nn.Sequential, int]:
        """Build a sequence of convolutions with normalization and activation. Return it and its output channels."""
        modules = []
        for n in map(self.scaled, filters):
            modules.append(self.convolution(channels, n, kernel, stride))
            channels = n
        return nn.Sequential(*modules), channels

    def dense(
        self, features: int, neurons: int, *, normalize: bool = False, activate: bool = False, bias: bool | None = None
    ) -> nn.Sequential:
        """Build a fully connected layer, optionally with normalization and activation."""
        bias = (not normalize or self.norm is None or self.spherical_norm) if bias is None else bias
        return self._build_unit(
            "linear", self.linear(features, neurons, bias=bias), neurons, norm=normalize, activate=activate
        )

    def perceptron(self, features: int, neurons: Iterable[int], *, normalize: bool = True) -> tuple[nn.Sequential, int]:
        """Build a sequence of fully connected layers with activations. Return it and its output dimension."""
        modules = []
        for n in map(self.scaled, neurons):
            modules.append(self.dense(features, n, normalize=normalize, activate=True))
            features = n
        return nn.Sequential(*modules), features

    def nonlinearity(self, channels: int) -> nn.Module:
        """Return the activation for this number of channels."""
        if self.activation is None:
            return nn.Identity()
        return nn.PReLU(channels) if self.activation is nn.PReLU else self.activation()

    def normalization(self, channels: int) -> nn.Module:
        """Return the normalization as a separate module: the identity if there is none or it is a SphereNorm."""
        return nn.Identity() if self.norm is None or self.spherical_norm else self.norm(channels)

    @property
    def spherical_norm(self) -> bool:
        """Whether the normalization is a SphereNorm, which replaces the layer instead of following it."""
        return getattr(self.norm, "func", self.norm) is SphereNorm

    def plain(self, conv: LayerFactory = nn.Conv2d) -> "Layers":
        """Return a copy with this convolution factory, without the operator and without SphereNorm."""
        return replace(self, conv=conv, operator=None, norm=None if self.spherical_norm else self.norm)

    def for_vectors(self) -> "Layers":
        """Return a copy with batch normalization for vectors instead of feature maps."""
        return replace(self, norm=nn.BatchNorm1d) if self.norm is nn.BatchNorm2d else self

    def _build_unit(self, name: str, layer: nn.Module, channels: int, *, norm: bool, activate: bool) -> nn.Sequential:
        self._initialize(layer)
        if self.operator is not None:
            # ``skip`` refers to names in the network, which do not exist yet. The network restores skipped layers at the end.
            convert(layer, operator=replace(self.operator, skip=()))
        if norm and self.norm is not None and self.spherical_norm:
            layer, norm = self.norm(layer), False
        parts = OrderedDict({name: layer})
        if norm and self.norm is not None:
            parts["norm"] = self.norm(channels)
        if activate and self.activation is not None:
            parts["activation"] = self.nonlinearity(channels)
        return nn.Sequential(parts)

    def _initialize(self, layer: nn.Module) -> None:
        """Draw the weights of a layer and its submodules, and set their biases to 0. Parametrized weights do not change."""
        if self.init is None:
            return
        for module in layer.modules():
            weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
            if isinstance(weight, nn.Parameter) and weight.ndim >= 2:
                self.init(weight.data)
                if isinstance(bias, nn.Parameter):
                    nn.init.zeros_(bias)


class Row(ABC):
    """One row of an architecture table.

    >>> class Average(Row):
    ...     name, size = "average", lambda self, size: size // 2
    ...     def build(self, layers, channels):
    ...         return torch.nn.AvgPool2d(2), channels
    >>> hs.models.ConvNet([Conv(8), Average()], 10, input_size=8)(torch.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 10])
    """

    name: str

    @abstractmethod
    def build(self, layers: Layers, channels: int) -> tuple[nn.Module, int]:
        """Return the module for the given number of input channels, and its number of output channels."""

    @abstractmethod
    def size(self, size: int) -> int:
        """Return the output height or width for an input of this height or width."""


@dataclass(frozen=True)
class Conv(Row):
    """``[kernel×kernel, filters]×times``. Only the first convolution has the stride; the others have stride 1.

    >>> Conv(64, times=3, stride=2).size(32)
    16
    """

    filters: int
    times: int = 1
    kernel: int = 3
    stride: int = 1
    name = "conv"

    def __post_init__(self) -> None:
        if min(self.filters, self.times, self.kernel, self.stride) < 1:
            raise ValueError(f"filters, times, kernel and stride must be integers ≥ 1, got {self}")

    def build(self, layers: Layers, channels: int) -> tuple[nn.Module, int]:
        """Build a sequence of convolutions with normalization and activation."""
        filters = layers.scaled(self.filters)
        first = layers.convolution(channels, filters, self.kernel, self.stride)
        return nn.Sequential(
            first, *(layers.convolution(filters, filters, self.kernel) for _ in range(self.times - 1))
        ), filters

    def size(self, size: int) -> int:
        """Return the size after all convolutions. Each one returns ⌊(size + 2·padding − kernel)/stride⌋ + 1."""
        for stride in (self.stride, *(1,) * (self.times - 1)):
            size = _get_output_size(size, self.kernel, stride)
        return size


@dataclass(frozen=True)
class Pool(Row):
    """``kernel×kernel max pooling, stride 2``.

    >>> Pool().size(7), Pool(kernel=3).size(7)
    (3, 4)
    """

    kernel: int = 2
    name = "pool"

    def build(self, layers: Layers, channels: int) -> tuple[nn.Module, int]:
        """Build max pooling, padded for odd kernels."""
        return nn.MaxPool2d(self.kernel, 2, padding=(self.kernel - 1) // 2), channels

    def size(self, size: int) -> int:
        """Return half of the size, rounded down for even kernels and up for odd kernels."""
        return _get_output_size(size, self.kernel, 2)


class Residual(nn.Module):
    """``after(body(x) + shortcut(x))``. ``shortcut`` and ``after`` are the identity by default.

    >>> Residual(torch.nn.Conv2d(8, 8, 3, padding=1), after=torch.nn.ReLU())(torch.zeros(2, 8, 4, 4)).shape
    torch.Size([2, 8, 4, 4])
    """

    def __init__(self, body: nn.Module, shortcut: nn.Module | None = None, after: nn.Module | None = None):
        super().__init__()
        self.body = body
        self.shortcut = nn.Identity() if shortcut is None else shortcut
        self.after = nn.Identity() if after is None else after

    def forward(self, x: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch filters rows columns"]:
        """Return the output of the residual unit."""
        return self.after(self.body(x) + self.shortcut(x))


def _get_output_size(size: int, kernel: int, stride: int) -> int:
    """Return the size after a convolution or pooling with padding (kernel − 1)/2, rounded down."""
    return (size + 2 * ((kernel - 1) // 2) - kernel) // stride + 1
