"""A residual network over spectrograms with pooling over time, as used for speakers (Heo et al., 2020)."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .pooling_over_time import AttentivePooling, StatisticsPooling


class SpectrogramBlock(nn.Module):
    """Two 3×3 convolutions with a shortcut."""

    def __init__(self, in_channels: int, out_channels: int, stride: int):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, 3, stride, 1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(),
            nn.Conv2d(out_channels, out_channels, 3, 1, 1, bias=False),
            nn.BatchNorm2d(out_channels),
        )
        same = stride == 1 and in_channels == out_channels
        self.shortcut: nn.Module = (
            nn.Identity() if same else nn.Conv2d(in_channels, out_channels, 1, stride, bias=False)
        )

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d i j"]:
        """Return the rectified sum."""
        return torch.relu(self.body(x) + self.shortcut(x))


class SpectrogramResNet(nn.Module):
    """A ResNet over (bands, frames) with statistics over time: (b, bands, frames) to (b, feature_dim).

    Args:
        bands: Mel bands of the input; a multiple of 8.
        widths: Channels of the four stages; the last three halve bands and frames.
        depths: Blocks of the stages.
        feature_dim: Dimension of the feature.
        pooling: ``"statistics"`` or ``"attentive"``.
        stride: Stride of the first convolution over bands and frames. A stride of 2 needs a quarter of the time ("Fast ResNet",
            Chung et al., 2020, arXiv:2003.11982).
        center: Subtract the mean over time from each band first, which removes the response of the microphone.

    Raises:
        ValueError: If ``bands`` is not a multiple of 8, ``pooling`` is unknown, or ``stride`` is neither 1 nor 2.

    >>> SpectrogramResNet(bands=40, widths=(4, 4, 8, 8), feature_dim=16)(torch.rand(2, 40, 100)).shape
    torch.Size([2, 16])
    """

    def __init__(
        self,
        bands: int = 80,
        widths: tuple[int, int, int, int] = (16, 32, 64, 128),
        depths: tuple[int, int, int, int] = (1, 1, 1, 1),
        feature_dim: int = 128,
        pooling: Literal["statistics", "attentive"] = "statistics",
        stride: int = 1,
        center: bool = False,
    ):
        super().__init__()
        if bands % 8:
            raise ValueError(f"bands must be a multiple of 8, got {bands}")
        if pooling not in ("statistics", "attentive"):
            raise ValueError(f"pooling must be 'statistics' or 'attentive', got {pooling!r}")
        self.feature_dim, self.center = feature_dim, center
        if stride not in (1, 2):
            raise ValueError(f"stride must be 1 or 2, got {stride!r}")
        convolution = nn.Conv2d(1, widths[0], 3, stride, 1, bias=False)
        self.first = nn.Sequential(convolution, nn.BatchNorm2d(widths[0]), nn.ReLU())
        blocks, channels = [], widths[0]
        for i, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            for j in range(depth):
                blocks.append(SpectrogramBlock(channels, width, 2 if i and not j else 1))
                channels = width
        self.blocks = nn.Sequential(*blocks)
        rows = channels * -(-bands // (8 * stride))
        self.pool: nn.Module = AttentivePooling(rows) if pooling == "attentive" else StatisticsPooling()
        self.linear = nn.Linear(2 * rows, feature_dim)

    def forward(self, spectrograms: Float[Tensor, "b bands frames"]) -> Float[Tensor, "b d"]:
        """Return the features. At least 8 frames are needed."""
        x = spectrograms - spectrograms.mean(2, keepdim=True) if self.center else spectrograms
        x = self.blocks(self.first(x[:, None]))
        return self.linear(self.pool(x.flatten(1, 2)))
