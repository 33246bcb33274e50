import pytest
import torch
from torch import nn

from hypersphere.orthogonal import add_task, average_tasks, cayley, finetune, use_task
from hypersphere.orthogonal.finetuning.task_average import average_generators
from tests.orthogonal.finetuning.contracts import shake


def skew(raw, n):
    x = torch.zeros(n, n, dtype=raw.dtype)
    i, j = torch.triu_indices(n, n, 1)
    x[i, j] = raw
    return x - x.T


def test_is_the_mean_direction_with_the_mean_length():
    layer = shake(add_task(finetune(nn.Linear(6, 30, dtype=torch.float64), block=6), "b"))
    w = layer.parametrizations.weight.original
    own = layer.parametrizations.weight[0]
    a, b = (skew(own.tasks[task].inputs.raw[0, 0].detach(), 6) for task in ("default", "b"))
    mean = (a.norm() + b.norm()) / (a + b).norm() * (a + b) / 2
    use_task(average_tasks(layer, into="mean"), "mean")
    assert torch.allclose(layer.weight, w @ cayley(mean).T, atol=1e-12)
    assert torch.allclose(mean.norm(), (a.norm() + b.norm()) / 2)


def test_equal_tasks_are_their_own_average_and_opposite_ones_cancel():
    raw = torch.randn(1, 3, 6)
    assert torch.allclose(average_generators(torch.stack([raw, raw])), raw)
    assert torch.equal(average_generators(torch.stack([raw, -raw])), torch.zeros_like(raw))


def test_refuses():
    layer = add_task(finetune(nn.Linear(16, 60), block=4), "b")
    with pytest.raises(ValueError, match="two or more tasks"):
        average_tasks(layer, ["b"])
    with pytest.raises(ValueError, match="has no task 'c'; its tasks are default, b"):
        average_tasks(layer, ["b", "c"])
    with pytest.raises(ValueError, match="into must be a new name"):
        average_tasks(layer, into="b")
    with pytest.raises(ValueError, match="is tuned by 'hra', whose R is not a single Cayley transform"):
        average_tasks(add_task(finetune(nn.Linear(16, 60), "hra"), "b"))
