import math

import pytest
import torch
from torch import nn

from hypersphere.experiments import Config, replace
from hypersphere.orthogonal import OGD, overparameterize
from hypersphere.training.config import Optimizer
from hypersphere.training.optimizers import build_optimizers, build_schedules, learning_rate, rate_factor


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))


@pytest.mark.parametrize(
    ("name", "kind"), [("sgd", torch.optim.SGD), ("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)]
)
def test_decays_matrices_only(name: str, kind: type) -> None:
    (optimizer,) = build_optimizers(Optimizer(name=name, weight_decay=0.3), network())  # type: ignore[arg-type]
    assert type(optimizer) is kind
    decays = {p.ndim: group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert decays == {2: 0.3, 1: 0.0}
    assert sum(len(group["params"]) for group in optimizer.param_groups) == 6


def test_rotations_get_their_own_optimizer() -> None:
    model = overparameterize(network(), "ogd")
    plain, rotations = build_optimizers(Optimizer(rotation_lr=0.2, rotation_momentum=0.5), model)
    assert isinstance(rotations, OGD)
    assert [tuple(p.shape) for p in rotations.param_groups[0]["params"]] == [(4, 4)]
    assert rotations.param_groups[0]["lr"] == 0.2
    mine, theirs = ({id(p) for group in o.param_groups for p in group["params"]} for o in (plain, rotations))
    assert not mine & theirs
    assert mine | theirs == {id(p) for p in model.parameters() if p.requires_grad}


@pytest.mark.parametrize("step", [0, 3, 9, 10, 50, 99])
def test_the_cosine_schedule_by_hand(step: int) -> None:
    factor = rate_factor(Optimizer(schedule="cosine", warmup=10), step, 100)
    assert factor == pytest.approx((step + 1) / 10 if step < 10 else math.cos(math.pi * (step - 10) / 180) ** 2)


def test_constant_and_step_schedules() -> None:
    assert rate_factor(Optimizer(schedule="constant", milestones=(1,)), 50, 100) == 1.0
    assert [rate_factor(Optimizer(milestones=(2, 4), gamma=0.5), step, 9) for step in range(6)] == [
        1,
        1,
        0.5,
        0.5,
        0.25,
        0.25,
    ]


def test_schedules_move_every_optimizer() -> None:
    model = overparameterize(network(), "ogd")
    config = replace(Config(steps=4), optimizer__lr=1.0, optimizer__milestones=(1,))
    optimizers = build_optimizers(config.optimizer, model)
    schedules = build_schedules(config, optimizers)
    assert learning_rate(optimizers) == {"lr": 1.0}
    model(torch.randn(5, 4)).sum().backward()
    for optimizer, schedule in zip(optimizers, schedules, strict=True):
        optimizer.step()
        schedule.step()
    assert learning_rate(optimizers) == {"lr": 0.1}
    assert optimizers[1].param_groups[0]["lr"] == pytest.approx(0.001)
