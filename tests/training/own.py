"""A user's networks and datasets, which the library does not know."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset

CLASSES = 5


class Net(nn.Module):
    """A small convolutional network with dropout and batch normalization, ending in features."""

    def __init__(self, width: int = 8, dim: int = 6):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.AdaptiveAvgPool2d(3),
            nn.Flatten(),
        )
        self.last = nn.Linear(9 * width, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.layers(x))


class NoisyNet(Net):
    """A network that draws from numpy's global generator during training, as users' networks may."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            noise = np.random.normal(0, 0.1, x.shape)  # noqa: NPY002
            x = x + torch.as_tensor(noise, dtype=x.dtype)
        return super().forward(x)


class Output:
    """The output of a transformers model."""

    def __init__(self, tokens: Tensor):
        self.last_hidden_state, self.pooler_output = tokens, None


class Tokens(nn.Module):
    """A network with the interface of a transformers model."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Net()

    def forward(self, x: Tensor) -> Any:
        return Output(self.net(x)[:, None].expand(-1, 4, -1))


class Squares(Dataset[Any]):
    """Colored noise with a bright square whose position is the label. Pixels lie in [0, 1]. Has no labels attribute."""

    def __init__(self, count: int = 80, seed: int = 0, first: int = 0):
        generator = torch.Generator().manual_seed(seed)
        self.images = torch.rand(count, 3, 12, 12, generator=generator) * 0.3
        self.answers = torch.randint(CLASSES, (count,), generator=generator)
        for image, answer in zip(self.images, self.answers, strict=True):
            place = 2 * int(answer) + first
            image[:, place : place + 3, place : place + 3] += 0.6

    def __len__(self) -> int:
        return len(self.answers)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.images[index], int(self.answers[index])


class Stream(IterableDataset[Any]):
    """The same samples as an iterable dataset."""

    num_classes = CLASSES

    def __iter__(self) -> Any:
        yield from (Squares()[i] for i in range(80))
