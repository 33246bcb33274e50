"""Multilayer perceptron (7.5.2, F.3)."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .blocks import Init, LayerFactory, Layers
from .network import Network


class MLP(Network):
    """Hidden layers with an activation, then the classifier; the input is flattened.

    The text's network (F.3) has three layers: 784 → 256 → 256 → 10. Table 7.3 compares two starts: ``init=torch.nn.init.xavier_uniform_``,
    the default, and ``init=torch.nn.init.normal_``.

    Args:
        num_classes: None makes it a feature extractor.
        in_features: of the flattened input.
        hidden: neurons of the hidden layers; the last is the feature dimension.
        linear: layer factory with the signature of ``nn.Linear``.
        norm: neurons → normalization, e.g. ``nn.BatchNorm1d``.
        activation: a factory, or None.
        init: draws a weight in place; None for the layer's own initialisation.
        width: multiplies the hidden widths.
        classifier: ``(feature_dim, num_classes) → module``.

    >>> net = MLP()
    >>> net(torch.zeros(2, 1, 28, 28)).shape, net.feature_dim
    (torch.Size([2, 10]), 256)
    """

    def __init__(
        self,
        num_classes: int | None = 10,
        *,
        in_features: int = 784,
        hidden: Sequence[int] = (256, 256),
        linear: LayerFactory = nn.Linear,
        norm: LayerFactory | None = None,
        activation: LayerFactory | None = nn.ReLU,
        init: Init | None = torch.nn.init.xavier_uniform_,
        width: float = 1.0,
        classifier: LayerFactory = nn.Linear,
    ):
        super().__init__()
        layers = Layers(linear=linear, norm=norm, activation=activation, init=init, width=width)
        self.body, dim = layers.perceptron(in_features, hidden)
        self._classify(dim, num_classes, classifier)

    def features(self, x: Float[Tensor, "batch *shape"]) -> Float[Tensor, "batch dim"]:
        """The last hidden layer."""
        return self.body(x.flatten(1))


def mlp(num_classes: int | None = 10, **options: Any) -> MLP:
    """The three-layer perceptron of F.3 (table 7.3); see :class:`MLP`."""
    return MLP(num_classes, **options)
