"""Pooling of sequences of any length: mean and deviation over time, plain or weighted by attention."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

MIN_VARIANCE = 1e-5


def pool_statistics(x: Float[Tensor, "b d t"], weights: Float[Tensor, "b d t"] | None = None) -> Float[Tensor, "b e"]:
    """Return the mean and the standard deviation of each channel over time, e = 2d.

    Args:
        x: Sequences.
        weights: Weight of each frame and channel; they sum to 1 over time. By default all frames have equal weights.

    >>> pool_statistics(torch.tensor([[[1.0, 3.0]]])).tolist()
    [[2.0, 1.0]]
    """
    if weights is None:
        mean, square = x.mean(2), x.square().mean(2)
    else:
        mean, square = (weights * x).sum(2), (weights * x.square()).sum(2)
    variance = square - mean.square()
    return torch.cat([mean, variance.clamp(min=MIN_VARIANCE).sqrt()], 1)


class StatisticsPooling(nn.Module):
    """Mean and standard deviation over time (Snyder et al., 2018, x-vectors).

    >>> StatisticsPooling()(torch.rand(2, 8, 30)).shape
    torch.Size([2, 16])
    """

    def forward(self, x: Float[Tensor, "b d t"]) -> Float[Tensor, "b e"]:
        """Return the statistics."""
        return pool_statistics(x)


class AttentivePooling(nn.Module):
    """Mean and standard deviation over time, weighted per channel by attention (Okabe et al., 2018; ECAPA-TDNN, 2020).

    The attention of a frame depends on the frame and on the mean and deviation of the whole sequence.

    Args:
        channels: Channels of the input.
        hidden: Width of the attention network. ECAPA-TDNN uses 128.

    >>> AttentivePooling(8, 4)(torch.rand(2, 8, 30)).shape
    torch.Size([2, 16])
    """

    def __init__(self, channels: int, hidden: int = 128):
        super().__init__()
        self.attention = nn.Sequential(
            nn.Conv1d(3 * channels, hidden, 1),
            nn.ReLU(),
            nn.BatchNorm1d(hidden),
            nn.Tanh(),
            nn.Conv1d(hidden, channels, 1),
        )

    def forward(self, x: Float[Tensor, "b d t"]) -> Float[Tensor, "b e"]:
        """Return the weighted statistics."""
        whole = pool_statistics(x)[:, :, None].expand(-1, -1, x.shape[2])
        return pool_statistics(x, self.attention(torch.cat([x, whole], 1)).softmax(2))
