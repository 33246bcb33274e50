"""MobileFaceNet (Chen et al., 2018, arXiv:1804.07573) in the variant that insightface trains."""

from collections.abc import Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from ..operators import Operator
from .blocks import ActivationOption, HeadFactory, InitOption, LayerFactory, Layers, NormOption, make_layers
from .iresnet import make_vector_layers
from .network import Network, pair

BASE_WIDTH = 64  # channels of the first stage, before `scale`
EXPANDED = (128, 256, 512)  # channels between the 1×1 convolutions where the maps are halved
REPEATED = (128, 256, 256)  # the same in the blocks that follow
HEAD_WIDTH = 512


class Bottleneck(nn.Module):
    """Expand, filter each channel by itself, project; with a shortcut if the block keeps the shape.

    Args:
        layers: The factories of the network.
        in_channels: Maps of the input.
        expanded: Maps between the two 1×1 convolutions.
        out_channels: Maps of the output.
        stride: 2 halves the maps, without a shortcut.

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
        blocks: Blocks of the four stages. A first stage of one block is a grouped 3×3 convolution.
        scale: Multiplies the channels between blocks, not those inside them. insightface publishes 2, and 4 with ``blocks``
            (2, 8, 12, 4) as the large variant.
        in_channels: Maps of the input.
        input_size: Height and width, or one number for both. The last convolution covers the whole map, so it is fixed.
        feature_dim: Dimension of the embedding.
        conv, linear, norm, activation, init, width, classifier, operator: see :class:`~hypersphere.models.Options`.

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
        conv: LayerFactory = nn.Conv2d,
        linear: LayerFactory = nn.Linear,
        norm: NormOption = "batch",
        activation: ActivationOption = "prelu",
        init: InitOption = "he",
        width: float = 1.0,
        classifier: HeadFactory = nn.Linear,
        operator: Operator | None = None,
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
        layers = make_layers(
            conv=conv, linear=linear, norm=norm, activation=activation, init=init, width=width, operator=operator
        )
        base, head = layers.scaled(BASE_WIDTH), layers.scaled(HEAD_WIDTH)
        channels = scale * base
        self.stem = layers.convolution(in_channels, channels, 3, 2)
        if blocks[0] == 1:
            first: nn.Module = layers.convolution(channels, channels, 3, groups=base)
        else:
            wide = layers.scaled(EXPANDED[0])
            first = nn.Sequential(*(Bottleneck(layers, channels, wide, channels) for _ in range(blocks[0])))
        stages = [first]
        widths = (channels, 2 * channels, 2 * channels)
        for out, expanded, repeated, count in zip(widths, EXPANDED, REPEATED, blocks[1:], strict=True):
            stages.append(Bottleneck(layers, channels, layers.scaled(expanded), out, stride=2))
            stages.append(nn.Sequential(*(Bottleneck(layers, out, layers.scaled(repeated), out) for _ in range(count))))
            channels = out
        self.stages = nn.Sequential(*stages)
        self.last = layers.convolution(channels, head, 1)
        rows, columns = (-(-side // 16) for side in pair(input_size))
        self.collect = layers.convolution(head, head, (rows, columns), padding=0, groups=head, activate=False)
        self.embedding = make_vector_layers(layers).dense(head, feature_dim, normalize=True, bias=False)
        self._classify(feature_dim, num_classes, classifier, operator)

    def features(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d"]:
        """Return the embedding of a batch of aligned faces."""
        embedded: Tensor = self.embedding(self.collect(self.last(self.stages(self.stem(x)))).flatten(1))
        return embedded
