"""MobileFaceNet (Chen et al., 2018, arXiv:1804.07573) in the variant that insightface trains."""

from collections.abc import Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import Unpack

from .blocks import Layers, make_layers
from .network import ConvOptions, Network, make_pair

BASE_WIDTH = 64  # channels of the first stage, before they are multiplied by `scale`
# Channels between the two 1×1 convolutions of a bottleneck, for the last three stages.
FIRST_EXPANDED = (128, 256, 512)  # in the first block of the stage, which halves the feature maps
NEXT_EXPANDED = (128, 256, 256)  # in its other blocks
HEAD_WIDTH = 512  # channels of the last 1×1 convolution


class Bottleneck(nn.Module):
    """A 1×1 convolution to more channels, a depthwise 3×3 convolution, and a 1×1 convolution to fewer channels.

    Args:
        layers: The factories of the network.
        in_channels: Channels of the input.
        expanded: Channels between the two 1×1 convolutions.
        out_channels: Channels of the output.
        stride: 1 adds a shortcut; 2 halves height and width.

    >>> Bottleneck(hs.models.make_layers(), 8, 16, 8)(torch.zeros(1, 8, 4, 4)).shape
    torch.Size([1, 8, 4, 4])
    """

    def __init__(self, layers: Layers, in_channels: int, expanded: int, out_channels: int, stride: int = 1):
        super().__init__()
        self.expand = layers.convolution(in_channels, expanded, 1)
        self.filter = layers.convolution(expanded, expanded, 3, stride, groups=expanded)
        self.project = layers.convolution(expanded, out_channels, 1, activate=False)
        self.shortcut = stride == 1

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d i j"]:
        """Return the output, plus the input if there is a shortcut."""
        out: Tensor = self.project(self.filter(self.expand(x)))
        return out + x if self.shortcut else out


class MobileFaceNet(Network):
    """The small network for aligned faces: inverted bottlenecks and a depthwise convolution over the whole last map.

    Pixels are (x − 127.5)/127.5. The files of insightface load with :func:`read_insightface`.

    Args:
        num_classes: None makes it a feature extractor.
        blocks: Number of blocks of the four stages. A first stage with one block is a grouped 3×3 convolution.
        scale: Multiplies the channels between blocks, not those inside them. insightface publishes 2, and 4 with ``blocks``
            (2, 8, 12, 4) as the large variant.
        in_channels: Channels of the input.
        input_size: Height and width, or one number for both. The last convolution covers the whole feature map, so other
            sizes are not accepted later.
        feature_dim: Dimension of the embedding.
        **options: See :class:`~hypersphere.models.ConvOptions`. By default batch normalization, PReLU and He
            initialization.

    Raises:
        ValueError: If ``blocks`` are not four numbers of at least 1, or ``scale`` is below 1.

    >>> net = MobileFaceNet(width=0.25)
    >>> net(torch.zeros(2, 3, 112, 112)).shape
    torch.Size([2, 512])
    """

    def __init__(
        self,
        num_classes: int | None = None,
        *,
        blocks: Sequence[int] = (1, 4, 6, 2),
        scale: int = 2,
        in_channels: int = 3,
        input_size: int | tuple[int, int] = 112,
        feature_dim: int = 512,
        **options: Unpack[ConvOptions],
    ):
        super().__init__()
        if len(blocks) != 4 or min(blocks) < 1:
            raise ValueError(f"blocks must be four integers ≥ 1, one per stage, got {tuple(blocks)}")
        if scale < 1:
            raise ValueError(f"scale must be an integer ≥ 1, got {scale!r}")
        self.settings: dict[str, Any] = {
            "blocks": tuple(blocks),
            "scale": scale,
            "input_size": input_size,
            "feature_dim": feature_dim,
        }
        options.setdefault("activation", "prelu")
        layers = make_layers(**options)
        base, head = layers.scaled(BASE_WIDTH), layers.scaled(HEAD_WIDTH)
        channels = scale * base
        self.stem = layers.convolution(in_channels, channels, 3, 2)
        if blocks[0] == 1:
            first: nn.Module = layers.convolution(channels, channels, 3, groups=base)
        else:
            wide = layers.scaled(FIRST_EXPANDED[0])
            first = nn.Sequential(*(Bottleneck(layers, channels, wide, channels) for _ in range(blocks[0])))
        stages = [first]
        widths = (channels, 2 * channels, 2 * channels)
        for out, first_wide, next_wide, count in zip(widths, FIRST_EXPANDED, NEXT_EXPANDED, blocks[1:], strict=True):
            stages.append(Bottleneck(layers, channels, layers.scaled(first_wide), out, stride=2))
            stages.append(
                nn.Sequential(*(Bottleneck(layers, out, layers.scaled(next_wide), out) for _ in range(count)))
            )
            channels = out
        self.stages = nn.Sequential(*stages)
        self.last = layers.convolution(channels, head, 1)
        rows, columns = (-(-side // 16) for side in make_pair(input_size))
        self.collect = layers.convolution(head, head, (rows, columns), padding=0, groups=head, activate=False)
        self.embedding = layers.for_vectors().dense(head, feature_dim, normalize=True, bias=False)
        self._add_classifier(feature_dim, num_classes, layers)

    def features(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d"]:
        """Return the embedding of a batch of aligned faces."""
        embedded: Tensor = self.embedding(self.collect(self.last(self.stages(self.stem(x)))).flatten(1))
        return embedded
