"""Optimizers from the config: one for the network, and OGD for rotations that move on the orthogonal group."""

import math
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from ..orthogonal import OGD, param_groups
from .config import Config
from .config import Optimizer as Settings


def build_optimizers(config: Settings, model: nn.Module) -> list[Optimizer]:
    """SGD, Adam or AdamW for every parameter but the rotations of ``method="ogd"``, which get OGD.

    Weight decay is for matrices and filters: a bias, a learned radius or a normalization's scale has no direction to shrink.
    """
    rotations, others = param_groups(model)
    decayed = [p for p in others if p.ndim > 1]
    plain = [p for p in others if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    groups = [group for group in groups if group["params"]]
    optimizers: list[Optimizer] = []
    if config.name == "sgd":
        optimizers.append(torch.optim.SGD(groups, config.lr, config.momentum, nesterov=config.nesterov))
    else:
        kind = torch.optim.Adam if config.name == "adam" else torch.optim.AdamW
        optimizers.append(kind(groups, config.lr, config.betas))
    if rotations:
        optimizers.append(OGD(rotations, config.rotation_lr, config.rotation_momentum, reproject_every=100))
    return optimizers


def build_schedules(config: Config, optimizers: list[Optimizer]) -> list[LambdaLR]:
    """One factor over time for every optimizer."""
    return [
        LambdaLR(optimizer, lambda step: rate_factor(config.optimizer, step, config.steps)) for optimizer in optimizers
    ]


def rate_factor(config: Settings, step: int, steps: int) -> float:
    """What the learning rate is multiplied by at a step: warm-up, then constant, falling at milestones, or half a cosine to 0.

    >>> [rate_factor(Settings(milestones=(10, 20)), step, 30) for step in (0, 10, 25)]
    [1.0, 0.1, 0.010000000000000002]
    """
    if step < config.warmup:
        return (step + 1) / config.warmup
    if config.schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * (step - config.warmup) / max(steps - config.warmup, 1)))
    if config.schedule == "step":
        return config.gamma ** sum(step >= milestone for milestone in config.milestones)
    return 1.0


def learning_rate(optimizers: list[Optimizer]) -> dict[str, Any]:
    """The present rate, for the log."""
    return {"lr": optimizers[0].param_groups[0]["lr"]}
