"""Small networks and data for tests of attacks."""

import torch
from torch import nn


def small_network(seed=0, *, train=True):
    """A convolutional network with BatchNorm and dropout that separates four colors of noise; in training mode."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32, 4),
    )
    if train:
        optimizer = torch.optim.Adam(model.parameters(), 0.02)
        for _ in range(60):
            images, labels = colors(64)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
        model.zero_grad(set_to_none=True)
    return model


def colors(n):
    """Noise with one of four tints; the tint is the label."""
    tints = torch.tensor([[0.5, 0.5, 0.5], [0.6, 0.45, 0.5], [0.45, 0.6, 0.5], [0.5, 0.45, 0.6]])
    labels = torch.randint(4, (n,))
    return (tints[labels][:, :, None, None] + 0.1 * torch.randn(n, 3, 8, 8)).clamp(0, 1), labels
