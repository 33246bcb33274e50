"""PointNet for the classification of point clouds (6.6.2, 7.5.5; tables 6.8, 7.12), with and without T-Net."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import Unpack

from ..geometry import orthonormality
from .blocks import Layers, make_layers
from .network import ConvOptions, Network


class PointNet(Network):
    """1×1 convolutions 64, 64, 64, 128, 1024 on every point, the maximum over points, fully connected 512, 256.

    The result does not depend on the order of the points. With ``t_net=True`` a small network of the same kind
    predicts a 3×3 matrix that is applied to the points, and another one a 64×64 matrix for the features after the second
    convolution. Both start at the identity. There are then two dropouts instead of one, and :meth:`auxiliary_losses`
    keeps the second transform close to orthogonal. This and Glorot initialization follow the implementation that
    Liu (2020) follows.

    Args:
        num_classes: 40 for ModelNet-40; None makes it a feature extractor.
        t_net: Use the two transforms: "PN (T)" of table 6.8.
        in_channels: Coordinates of a point.
        dropout: Probability of dropout before the classifier, and with ``t_net`` also after the first fully connected
            layer.
        transform_penalty: Weight of ½‖AAᵀ − I‖²_F of the feature transforms, summed over the batch.
        **options: See :class:`~hypersphere.models.ConvOptions`; ``conv`` has the signature of ``nn.Conv1d``.

    Raises:
        ValueError: If ``transform_penalty`` is negative.

    >>> net = PointNet(40, width=0.25).eval()
    >>> net(torch.randn(2, 3, 100)).shape, net.feature_dim
    (torch.Size([2, 40]), 64)
    """

    def __init__(
        self,
        num_classes: int | None = 40,
        *,
        t_net: bool = False,
        in_channels: int = 3,
        dropout: float = 0.3,
        transform_penalty: float = 0.001,
        **options: Unpack[ConvOptions],
    ):
        super().__init__()
        if not transform_penalty >= 0:
            raise ValueError(f"transform_penalty must be a number ≥ 0, got {transform_penalty!r}")
        self.transform_penalty = transform_penalty
        self._transform: Tensor | None = None  # of the last batch
        options.setdefault("conv", nn.Conv1d)
        options.setdefault("init", "xavier")
        layers = make_layers(**options, batch=nn.BatchNorm1d)
        self.input_transform = TNet(layers, in_channels) if t_net else None
        self.points, channels = layers.convolutions(in_channels, (64, 64), 1)
        self.feature_transform = TNet(layers, channels) if t_net else None
        self.lifted, channels = layers.convolutions(channels, (64, 128, 1024), 1)
        self.cloud, dim = layers.perceptron(channels, (512, 256))
        if t_net:
            self.cloud[0].add_module("dropout", nn.Dropout(dropout))
        self.dropout = nn.Dropout(dropout)
        self._add_classifier(dim, num_classes, layers)

    def features(self, x: Float[Tensor, "batch coordinates points"]) -> Float[Tensor, "batch dim"]:
        """Return the embedding of a batch of clouds."""
        features, transform = self.features_and_transform(x)
        self._transform = transform if self.training else None
        return features

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the transform of the last batch, which autograd does not allow to copy or pickle."""
        return {**self.__dict__, "_transform": None}

    def auxiliary_losses(self) -> dict[str, Float[Tensor, ""]]:
        """Return the penalty on the feature transforms of the last training batch; empty without T-Net."""
        if self._transform is None:
            return {}
        return {"transform": self.transform_penalty * orthonormality(self._transform) / 2}

    def features_and_transform(
        self, x: Float[Tensor, "batch coordinates points"]
    ) -> tuple[Float[Tensor, "batch dim"], Float[Tensor, "batch channels channels"] | None]:
        """Return the embedding and the feature transform, which is None without T-Net."""
        if self.input_transform is not None:
            x = self.input_transform(x) @ x
        x, transform = self.points(x), None
        if self.feature_transform is not None:
            transform = self.feature_transform(x)
            x = transform @ x
        return self.dropout(self.cloud(self.lifted(x).amax(-1))), transform


class TNet(nn.Module):
    """A PointNet that predicts a square matrix for the channels of its input, the identity at the start of training.

    >>> layers = make_layers(conv=torch.nn.Conv1d, norm=None, width=0.1)
    >>> TNet(layers, channels=2)(torch.randn(1, 2, 20)).detach()
    tensor([[[1., 0.],
             [0., 1.]]])
    """

    def __init__(self, layers: Layers, channels: int):
        super().__init__()
        self.points, lifted = layers.convolutions(channels, (64, 128, 1024), 1)
        self.cloud, dim = layers.perceptron(lifted, (512, 256))
        # The entries of a matrix may have any value, so this layer is always linear.
        self.matrix = nn.Linear(dim, channels * channels)
        nn.init.zeros_(self.matrix.weight)
        with torch.no_grad():
            self.matrix.bias.copy_(torch.eye(channels).flatten())

    def forward(self, x: Float[Tensor, "batch channels points"]) -> Float[Tensor, "batch channels channels"]:
        """Return one matrix per cloud."""
        channels = x.shape[1]
        return self.matrix(self.cloud(self.points(x).amax(-1))).unflatten(-1, (channels, channels))


class PointNetOptions(ConvOptions, total=False):
    """The arguments of :class:`PointNet`."""

    t_net: bool
    in_channels: int
    dropout: float
    transform_penalty: float


def pointnet(num_classes: int | None = 40, **options: Unpack[PointNetOptions]) -> PointNet:
    """Build the PointNet of 6.6.2 and 7.5.5, plain or with ``t_net=True``; see :class:`PointNet`.

    >>> net = pointnet(40, t_net=True, width=0.1).eval()
    >>> net(torch.randn(2, 3, 64)).shape
    torch.Size([2, 40])
    """
    return PointNet(num_classes, **options)
