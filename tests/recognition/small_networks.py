"""Small networks that embedder files can name: one of the library and one of a user's own module."""

import torch
from torch import nn

from hypersphere.config import call
from hypersphere.data import PicturePreprocessing
from hypersphere.models import cnn3
from hypersphere.recognition import Embedder

ROWS, COLUMNS = 16, 8


class Tiny(nn.Module):
    """A user's own network. The constructor argument ``noise`` does not show in its tensors."""

    def __init__(self, channels: int = 1, dim: int = 5, noise: float = 0.0):
        super().__init__()
        self.conv, self.norm, self.out = nn.Conv2d(channels, 4, 3, stride=2), nn.BatchNorm2d(4), nn.Linear(36, dim)
        self.noise = noise

    def forward(self, x):
        maps = nn.functional.adaptive_avg_pool2d(self.norm(self.conv(x)).relu(), 3)
        return self.out(maps.flatten(1)) + self.noise


def no_network() -> int:
    return 3


def small_cnn(channels=1, dim=5, seed=0, **options):
    """Return ``(network, call)`` of a small network of this library, with updated running statistics."""
    made = call(
        cnn3,
        num_classes=None,
        widths=(4, 4, 4),
        in_channels=channels,
        input_size=(ROWS, COLUMNS),
        feature_dim=dim,
        **options,
    )
    torch.manual_seed(seed)
    network = made.build()
    network(torch.randn(8, channels, ROWS, COLUMNS))  # updates the running statistics
    return network.eval(), made


def small_embedder(channels=1, dim=5, seed=0, **preprocessing):
    network, made = small_cnn(channels, dim, seed)
    return Embedder(network, PicturePreprocessing((ROWS, COLUMNS), channels, **preprocessing), made)
