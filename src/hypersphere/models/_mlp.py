"""Multilayer perceptron (7.5.2, F.3)."""

import math
from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import Unpack

from .blocks import make_layers
from .network import LayerOptions, Network, make_pair


class MLP(Network):
    """A multilayer perceptron: it flattens the input and applies hidden layers with ReLU, then the classifier.

    The network of Liu (2020, F.3) has three layers: 784 → 256 → 256 → 10. Table 7.3 compares two initializations,
    ``init="xavier"`` (the default) and ``init="normal"``. By default there is no normalization.

    Args:
        num_classes: Number of classes; None makes the network a feature extractor.
        in_features: Dimension of the flattened input; by default ``in_channels`` times the area of ``input_size``.
        in_channels: Channels of an image.
        input_size: Height and width of an image, or one number for both.
        hidden: Neurons of the hidden layers; the last number is the feature dimension.
        **options: See :class:`~hypersphere.models.LayerOptions`.

    >>> net = MLP()
    >>> net(torch.zeros(2, 1, 28, 28)).shape, net.feature_dim
    (torch.Size([2, 10]), 256)
    """

    def __init__(
        self,
        num_classes: int | None = 10,
        *,
        in_features: int | None = None,
        in_channels: int = 1,
        input_size: int | tuple[int, int] = 28,
        hidden: Sequence[int] = (256, 256),
        **options: Unpack[LayerOptions],
    ):
        super().__init__()
        options.setdefault("norm", None)
        options.setdefault("init", "xavier")
        layers = make_layers(**options, batch=nn.BatchNorm1d)
        size = in_channels * math.prod(make_pair(input_size)) if in_features is None else in_features
        self.body, dim = layers.perceptron(size, hidden)
        self._add_classifier(dim, num_classes, layers)

    def features(self, x: Float[Tensor, "batch *shape"]) -> Float[Tensor, "batch dim"]:
        """Return the output of the last hidden layer."""
        return self.body(x.flatten(1))


class MLPOptions(LayerOptions, total=False):
    """The arguments of :class:`MLP`."""

    in_features: int | None
    in_channels: int
    input_size: int | tuple[int, int]
    hidden: Sequence[int]


def mlp(num_classes: int | None = 10, **options: Unpack[MLPOptions]) -> MLP:
    """Build the three-layer perceptron of F.3 (table 7.3); see :class:`MLP`.

    >>> mlp(10)(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """
    return MLP(num_classes, **options)
