"""A package of models with one small constructor, in place of the architectures, for files that name theirs."""

import sys
import types

import pytest
import torch
from torch import nn


def tiny(channels=1, dim=8, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(channels, 4, 3, stride=2),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(3),
        nn.Flatten(),
        nn.Linear(36, dim),
    )


@pytest.fixture
def models(monkeypatch):
    module = types.ModuleType("hypersphere.models")
    module.tiny = tiny
    module.plain_function = lambda: 3
    module.hidden = tiny
    module.__all__ = ["plain_function", "tiny"]
    monkeypatch.setitem(sys.modules, "hypersphere.models", module)
    return module
