"""ECAPA-TDNN: a speaker network of dilated convolutions over time (Desplanques et al., 2020)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .pooling_over_time import AttentivePooling

DILATIONS = (2, 3, 4)


class Res2Convolution(nn.Module):
    """Convolutions over groups of channels. Each group also sees the output of the group before it (Gao et al., 2019)."""

    def __init__(self, channels: int, kernel: int, dilation: int, scale: int):
        super().__init__()
        width = channels // scale
        self.parts = nn.ModuleList(_block(width, width, kernel, dilation) for _ in range(scale - 1))
        self.scale = scale

    def forward(self, x: Float[Tensor, "b d t"]) -> Float[Tensor, "b d t"]:
        """Return the first group unchanged, followed by the convolved other groups."""
        first, *groups = x.chunk(self.scale, 1)
        outputs = [first]
        for part, group in zip(self.parts, groups, strict=True):
            outputs.append(part(group if len(outputs) == 1 else group + outputs[-1]))
        return torch.cat(outputs, 1)


class SqueezeExcitation(nn.Module):
    """Channels weighted by a network that sees their means over time (Hu et al., 2018)."""

    def __init__(self, channels: int, hidden: int):
        super().__init__()
        self.weigh = nn.Sequential(
            nn.Conv1d(channels, hidden, 1), nn.ReLU(), nn.Conv1d(hidden, channels, 1), nn.Sigmoid()
        )

    def forward(self, x: Float[Tensor, "b d t"]) -> Float[Tensor, "b d t"]:
        """Return the weighted channels."""
        return x * self.weigh(x.mean(2, keepdim=True))


class ECAPA(nn.Module):
    """A small ECAPA-TDNN: (b, bands, frames) to (b, feature_dim), for any number of frames.

    Args:
        bands: Mel bands of the input.
        channels: Width of the layers, a multiple of ``scale``. The paper uses 512 and 1024; 128 is enough for tens of
            speakers.
        feature_dim: Dimension of the feature. The paper uses 192.
        scale: Groups of channels in the Res2 convolutions.
        hidden: Width of attention and of squeeze and excitation.

    Raises:
        ValueError: If ``channels`` is not a multiple of ``scale``.

    >>> ECAPA(bands=40, channels=32, feature_dim=16)(torch.rand(2, 40, 100)).shape
    torch.Size([2, 16])
    """

    def __init__(self, bands: int = 80, channels: int = 128, feature_dim: int = 192, scale: int = 8, hidden: int = 64):
        super().__init__()
        if channels % scale:
            raise ValueError(f"channels must be a multiple of scale = {scale}, got {channels}")
        self.feature_dim = feature_dim
        self.first = _block(bands, channels, 5, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                _block(channels, channels, 1, 1),
                Res2Convolution(channels, 3, dilation, scale),
                _block(channels, channels, 1, 1),
                SqueezeExcitation(channels, hidden),
            )
            for dilation in DILATIONS
        )
        wide = 3 * channels
        self.aggregate = nn.Sequential(nn.Conv1d(len(DILATIONS) * channels, wide, 1), nn.ReLU())
        self.pool = AttentivePooling(wide, hidden)
        self.norm = nn.BatchNorm1d(2 * wide)
        self.linear = nn.Linear(2 * wide, feature_dim)

    def forward(self, spectrograms: Float[Tensor, "b bands frames"]) -> Float[Tensor, "b d"]:
        """Return the features."""
        x = self.first(spectrograms)
        outputs = []
        for block in self.blocks:
            x = x + block(x)
            outputs.append(x)
        return self.linear(self.norm(self.pool(self.aggregate(torch.cat(outputs, 1)))))


def _block(in_channels: int, out_channels: int, kernel: int, dilation: int) -> nn.Sequential:
    convolution = nn.Conv1d(in_channels, out_channels, kernel, padding=dilation * (kernel // 2), dilation=dilation)
    return nn.Sequential(convolution, nn.ReLU(), nn.BatchNorm1d(out_channels))
