"""IResNet: the residual networks of ArcFace (Deng et al., 2019, arXiv:1801.07698), in the version of insightface."""

from typing import Any, Literal, TypeAlias

from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import Unpack

from .blocks import Layers, make_layers
from .network import ConvOptions, Network, get_preset, make_pair

Depth: TypeAlias = Literal[18, 34, 50, 100, 200]
# depth → number of residual blocks in each of the four stages
BLOCKS: dict[Depth, tuple[int, int, int, int]] = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 14, 3),
    100: (3, 13, 30, 3),
    200: (6, 26, 60, 6),
}
WIDTHS = (64, 128, 256, 512)  # channels of the four stages


class IResNetBlock(nn.Module):
    """A residual block: normalization and two 3×3 convolutions, plus a shortcut. No nonlinearity follows the sum.

    The second convolution has the stride. The shortcut is a 1×1 convolution in the first block of a stage.

    Args:
        layers: The layer factories of the network.
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        stride: 2 halves height and width.

    >>> IResNetBlock(hs.models.make_layers(), 8, 16, stride=2)(torch.zeros(1, 8, 6, 6)).shape
    torch.Size([1, 16, 3, 3])
    """

    def __init__(self, layers: Layers, in_channels: int, out_channels: int, stride: int = 1):
        super().__init__()
        self.norm = layers.normalization(in_channels)
        self.first = layers.convolution(in_channels, out_channels, 3)
        self.second = layers.convolution(out_channels, out_channels, 3, stride, activate=False)
        same = stride == 1 and in_channels == out_channels
        self.shortcut: nn.Module = (
            nn.Identity() if same else layers.convolution(in_channels, out_channels, 1, stride, activate=False)
        )

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d i j"]:
        """Return the sum of the residual branch and the shortcut."""
        residual: Tensor = self.second(self.first(self.norm(x)))
        return residual + self.shortcut(x)


class IResNet(Network):
    """The network of ArcFace for aligned faces: four stages of residual blocks and a normalized linear embedding.

    The network expects pixels scaled by (x − 127.5)/127.5. :func:`read_insightface` loads the files of insightface.

    Args:
        depth: 18, 34, 50, 100 or 200.
        num_classes: Number of classes; None makes the network a feature extractor.
        in_channels: Channels of the input.
        input_size: Height and width, or one number for both. The embedding layer covers the whole last feature map, so the
            network accepts no other size.
        feature_dim: Dimension of the embedding.
        **options: See :class:`~hypersphere.models.ConvOptions`. The defaults are batch normalization, PReLU and
            He initialization.

    Raises:
        ValueError: If there is no network of this depth.

    >>> net = IResNet(18, width=0.125)
    >>> net(torch.zeros(2, 3, 112, 112)).shape
    torch.Size([2, 512])
    """

    def __init__(
        self,
        depth: Depth,
        num_classes: int | None = None,
        *,
        in_channels: int = 3,
        input_size: int | tuple[int, int] = 112,
        feature_dim: int = 512,
        **options: Unpack[ConvOptions],
    ):
        super().__init__()
        self.settings: dict[str, Any] = {"depth": depth, "input_size": input_size, "feature_dim": feature_dim}
        options.setdefault("activation", "prelu")
        layers = make_layers(**options)
        channels = layers.scaled(WIDTHS[0])
        self.stem = layers.convolution(in_channels, channels, 3)
        stages, (rows, columns) = [], make_pair(input_size)
        for filters, count in zip(map(layers.scaled, WIDTHS), get_preset(BLOCKS, depth, "depth"), strict=True):
            blocks = [IResNetBlock(layers, channels, filters, stride=2)]
            blocks += [IResNetBlock(layers, filters, filters) for _ in range(count - 1)]
            stages.append(nn.Sequential(*blocks))
            channels, rows, columns = filters, -(-rows // 2), -(-columns // 2)
        self.stages = nn.Sequential(*stages)
        self.norm = layers.normalization(channels)
        self.embedding = layers.for_vectors().dense(channels * rows * columns, feature_dim, normalize=True, bias=True)
        self._add_classifier(feature_dim, num_classes, layers)

    def features(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d"]:
        """Return the embedding of a batch of aligned faces."""
        embedded: Tensor = self.embedding(self.norm(self.stages(self.stem(x))).flatten(1))
        return embedded
