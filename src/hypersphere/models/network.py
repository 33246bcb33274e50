"""The interface of all models, their common options, and convolutional networks from the rows of a table.

The functions at the end work with any network: they read its features and put it into evaluation mode.
"""

import threading
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import TypedDict, Unpack

from ..neurons import get_change_report
from ..operators import Operator, restore
from .blocks import ActivationOption, HeadFactory, InitOption, LayerFactory, Layers, NormOption, Row, make_layers

Key = TypeVar("Key")
Value = TypeVar("Value")
_lock = threading.Lock()
# For each model by its id: the number of `evaluation_mode` blocks that are running, and the modes to restore.
_evaluating: dict[int, tuple[int, list[tuple[nn.Module, bool]]]] = {}


class LayerOptions(TypedDict, total=False):
    """Arguments that the constructors of all networks share. :func:`make_layers` turns them into factories.

    - ``operator``: what every hidden layer computes, e.g. ``Operator(magnitudes.Tanh())``; None, the default, for plain
      layers.
    - ``linear``: layer factory with the signature of ``nn.Linear``, the default.
    - ``norm``: ``"batch"``, ``"sphere"`` and its variants, or a factory that takes the number of channels; ``"none"`` or
      None for the experiments without it (tables 4.2, 7.5).
    - ``activation``: ``"relu"``, ``"prelu"``, ``"leaky_relu"`` or a factory; ``"none"`` or None for the experiments
      without it (tables 3.3, 4.3).
    - ``init``: ``"he"``, ``"xavier"``, ``"normal"`` or a function that draws a weight in place; None keeps the
      initialization of the layer.
    - ``width``: multiplies every hidden width, for small runs; 1 by default. It does not change the feature dimension of
      a fully connected layer.
    - ``classifier``: ``(feature_dim, num_classes) → module``, such as a margin head; ``nn.Linear`` by default.

    >>> from hypersphere.models import Conv, ConvNet, LayerOptions
    >>> options: LayerOptions = {"norm": None, "activation": "prelu", "width": 0.5}
    >>> net = ConvNet([Conv(16)], 10, average=True, **options)
    >>> net.feature_dim
    8
    """

    operator: Operator | None
    linear: LayerFactory
    norm: NormOption
    activation: ActivationOption
    init: InitOption
    width: float
    classifier: HeadFactory


class ConvOptions(LayerOptions, total=False):
    """Arguments of networks with convolutions, in addition to :class:`LayerOptions`.

    - ``conv``: layer factory with the signature of ``nn.Conv2d``, the default.

    >>> from hypersphere.models import Conv, ConvNet, ConvOptions
    >>> options: ConvOptions = {"conv": hs.operators.Conv2d, "norm": None}
    >>> type(ConvNet([Conv(8)], average=True, **options).body.conv1[0].conv).__name__
    'Conv2d'
    """

    conv: LayerFactory


class Options(ConvOptions, total=False):
    """Arguments that the functions for convolutional networks share, in addition to :class:`ConvOptions`.

    - ``in_channels``: number of channels of the input; 3 by default.
    - ``input_size``: height and width, or one number for both; needed if the last feature map is flattened. With average
      pooling any size works.
    - ``feature_dim``: dimension of the last fully connected layer instead of that of the table; adds such a layer to a
      network without it. 2 or 3 for visualization.
    - ``last_activation``: activation of the features, as ``activation``; None by default, so that features fill the
      whole sphere and not one orthant (A.1).

    >>> from hypersphere.models import Conv, ConvNet, Options, Pool
    >>> options: Options = {"in_channels": 1, "input_size": 28, "feature_dim": 2}
    >>> net = ConvNet([Conv(8), Pool()], 10, **options)
    >>> net.features(torch.zeros(5, 1, 28, 28)).shape
    torch.Size([5, 2])
    """

    in_channels: int
    input_size: int | tuple[int, int]
    feature_dim: int | None
    last_activation: ActivationOption


class StageOptions(Options, total=False):
    """Arguments of networks with stages of different widths, in addition to :class:`Options`.

    - ``widths``: number of filters of each stage instead of those of the table.

    >>> from hypersphere.models import StageOptions, resnet18
    >>> options: StageOptions = {"widths": (8, 16, 32, 64)}
    >>> resnet18(**options).feature_dim
    64
    """

    widths: tuple[int, ...] | None


class Network(nn.Module, ABC):
    """A network with ``logits = classifier(features(x))``; with ``num_classes=None`` it returns its features.

    ``feature_dim`` is the dimension of the features. The classifier is registered last. If it has a method ``logits``,
    as margin heads do, ``forward`` calls that method. Training calls ``model.classifier(model.features(x), labels)`` for
    the loss. A network with several inputs, such as a graph network, overrides ``forward``.

    >>> class Flat(Network):
    ...     feature_dim, classifier = 48, None  # a feature extractor
    ...     def features(self, x):
    ...         return x.flatten(1)
    >>> Flat()(torch.zeros(2, 3, 4, 4)).shape
    torch.Size([2, 48])
    """

    feature_dim: int
    classifier: nn.Module | None

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """Return the embedding, the input of the classifier."""

    def logits(self, features: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch classes"]:
        """Return class scores of features; without a classifier, the features."""
        if self.classifier is None:
            return features
        logits = getattr(self.classifier, "logits", self.classifier)
        return logits(features)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``logits(features(x))``."""
        return self.logits(self.features(x))

    def _add_classifier(self, feature_dim: int, num_classes: int | None, layers: Layers) -> None:
        """Add the classifier, and make the layers that the operator skips plain again.

        Call it last in the constructor, so that the classifier is registered last and all names are known.
        """
        if num_classes is not None and num_classes < 1:
            raise ValueError(f"num_classes must be an integer ≥ 1, or None for a feature extractor, got {num_classes}")
        self.feature_dim = feature_dim
        self.classifier = None
        for name in () if layers.operator is None else layers.operator.skip:
            if not get_change_report(restore(self, only=name)).changed:
                raise ValueError(f"skip must name layers that an operator can replace; {name!r} is not one of them")
        if num_classes is not None:
            self.classifier = layers.classifier(feature_dim, num_classes)


class ConvNet(Network):
    """A network described like a table: rows, then fully connected layers or average pooling, then the classifier.

    By default it has batch normalization, ReLU and He initialization. No nonlinearity follows the last fully connected
    layer unless ``last_activation`` names one, so features fill the whole sphere and not one orthant (A.1).

    Args:
        rows: :class:`~hypersphere.models.Conv`, :class:`~hypersphere.models.Pool` and residual units.
        num_classes: None makes it a feature extractor.
        average: average the last map over positions; otherwise it is flattened, which fixes ``input_size``.
        fc: neurons of the fully connected layers.
        in_channels, input_size, feature_dim, last_activation: see :class:`Options`.
        **options: see :class:`ConvOptions`.

    >>> from hypersphere.models import Conv, ConvNet, Pool
    >>> net = ConvNet([Conv(8, times=2), Pool(), Conv(16), Pool()], 10, input_size=8, fc=[32])
    >>> net.features(torch.zeros(2, 3, 8, 8)).shape, net(torch.zeros(2, 3, 8, 8)).shape
    (torch.Size([2, 32]), torch.Size([2, 10]))
    """

    def __init__(
        self,
        rows: Sequence[Row],
        num_classes: int | None = 10,
        *,
        average: bool = False,
        fc: Sequence[int] = (),
        in_channels: int = 3,
        input_size: int | tuple[int, int] = 32,
        feature_dim: int | None = None,
        last_activation: ActivationOption = None,
        **options: Unpack[ConvOptions],
    ):
        super().__init__()
        layers = make_layers(**options)
        self.body, channels = _build_rows(rows, layers, in_channels)
        # Global average pooling accepts any size, so there is nothing to check.
        size = (1, 1) if average else _compute_output_size(rows, input_size)
        self.input_shape = None if average else (in_channels, *make_pair(input_size))
        self.pool = nn.AdaptiveAvgPool2d(1) if average else nn.Identity()
        fc = fc if feature_dim is None else [*fc[:-1], feature_dim]
        self.fc, dim = _build_fully_connected(layers, channels * size[0] * size[1], fc)
        self.last_activation = make_layers(activation=last_activation).nonlinearity(dim)
        self._add_classifier(dim, num_classes, layers)

    def features(self, x: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch dim"]:
        """Return the embedding of a batch of images."""
        if self.input_shape is not None and tuple(x.shape[1:]) != self.input_shape:
            raise ValueError(
                f"images must have shape {self.input_shape} (channels, height, width), got {tuple(x.shape[1:])}; "
                "build the model with input_size= for other sizes"
            )
        return self.last_activation(self.fc(self.pool(self.body(x)).flatten(1)))


def get_preset(presets: Mapping[Key, Value], choice: Key, name: str = "table") -> Value:
    """Return one of several presets. If it is unknown, the error lists all names."""
    if choice not in presets:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, presets))}, got {choice!r}")
    return presets[choice]


def choose_widths(table: Sequence[int], widths: tuple[int, ...] | None) -> Sequence[int]:
    """Return the number of filters of each stage: ``widths`` if given, otherwise those of the table."""
    if widths is None:
        return table
    if len(widths) != len(table) or min(widths) < 1:
        raise ValueError(f"widths must be {len(table)} integers ≥ 1, one per stage, got {widths!r}")
    return widths


def _build_rows(rows: Sequence[Row], layers: Layers, channels: int) -> tuple[nn.Sequential, int]:
    modules: OrderedDict[str, nn.Module] = OrderedDict()
    count: Counter[str] = Counter()
    for row in rows:
        count[row.name] += 1
        modules[f"{row.name}{count[row.name]}"], channels = row.build(layers, channels)
    return nn.Sequential(modules), channels


def _build_fully_connected(layers: Layers, dim: int, neurons: Sequence[int]) -> tuple[nn.Sequential, int]:
    """Build the fully connected layers. The width multiplier does not apply to the last one, which gives the features."""
    modules, dim = layers.perceptron(dim, neurons[:-1], normalize=False)
    for last in neurons[-1:]:
        modules.append(layers.dense(dim, last))
        dim = last
    return modules, dim


def _compute_output_size(rows: Sequence[Row], input_size: int | tuple[int, int]) -> tuple[int, int]:
    height, width = make_pair(input_size)
    for row in rows:
        height, width = row.size(height), row.size(width)
    if min(height, width) < 1:
        raise ValueError(f"input_size {input_size} is too small for this network: its last feature map would be empty")
    return height, width


def make_pair(size: int | tuple[int, int]) -> tuple[int, int]:
    """Return height and width; one number stands for both."""
    return (size, size) if isinstance(size, int) else size


def read_features(model: nn.Module, x: Tensor) -> Float[Tensor, "b d"]:
    """Return the features of a batch: the result of the network's method ``features``, or its output.

    Outputs of ``transformers`` are pooled by the pooler of the model, or by the mean over tokens. Feature maps (b, d, h, w)
    are averaged over positions.

    >>> read_features(torch.nn.Conv2d(3, 8, 3), torch.zeros(2, 3, 5, 5)).shape
    torch.Size([2, 8])
    """
    method = getattr(model, "features", None)
    out: Any = method(x) if callable(method) and not isinstance(method, nn.Module) else model(x)
    if not isinstance(out, Tensor):
        pooled = getattr(out, "pooler_output", None)
        out = pooled if pooled is not None else getattr(out, "last_hidden_state", None)
        if out is None:
            raise ValueError(f"{type(model).__name__} must return features as a tensor or as an output of transformers")
        if pooled is None and out.ndim == 3:
            out = out.mean(1)
    out = out.flatten(2).mean(2) if out.ndim > 2 else out
    if out.ndim != 2 or not out.is_floating_point():
        raise ValueError(f"{type(model).__name__} must return features of shape (batch, dim), got {tuple(out.shape)}")
    return cast(Tensor, out)


@torch.no_grad()
def find_feature_dim(model: nn.Module, sample: Tensor) -> int:
    """Return the dimension of a network's features: its ``feature_dim``, or that of its output for a batch."""
    known = getattr(model, "feature_dim", None)
    if isinstance(known, int):
        return known
    with evaluation_mode(model):
        return int(read_features(model, sample).shape[1])


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode inside the block, and restore the mode of every module after it.

    A frozen BatchNorm therefore stays frozen. Modes are also restored if the block raises. If several threads evaluate one
    model, the last one to leave restores the modes.

    >>> model = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Dropout().eval())
    >>> with evaluation_mode(model):
    ...     print([module.training for module in model])
    [False, False]
    >>> [module.training for module in model]
    [True, False]
    """
    with _lock:
        count, modes = _evaluating.get(id(model), (0, []))
        if not count:
            modes = [(module, module.training) for module in model.modules()]
            if any(mode for _, mode in modes):
                model.eval()
        _evaluating[id(model)] = (count + 1, modes)
    try:
        yield
    finally:
        with _lock:
            count, modes = _evaluating.pop(id(model))
            if count > 1:
                _evaluating[id(model)] = (count - 1, modes)
            else:
                for module, mode in modes:
                    module.training = mode
