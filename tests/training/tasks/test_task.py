import pathlib

import matplotlib.pyplot as plt
import pytest
import torch
from torch import nn

from hypersphere import plots
from hypersphere.config import call
from hypersphere.objectives import ArcFace
from hypersphere.training import Classification, Settings, Task
from hypersphere.training.tasks.task import draw
from hypersphere.training.trainer import describe
from tests.training.own import Net, Squares


class Minimal(Task):
    """A task of a user's own: a regression, whose only measure is its error."""

    def __init__(self):
        super().__init__()
        self.model, self.loader = nn.Linear(2, 1), None

    def forward(self, step, *batch):
        loss = (self.model(batch[0]) - batch[1]).square().mean()
        return loss, {"square": loss}

    def evaluate(self):
        return {"error": float(self.model.weight.detach().abs().sum())}


def test_a_task_needs_a_loss_and_a_measure_only(tmp_path):
    task = Minimal()
    assert task(0, torch.ones(3, 2), torch.ones(3, 1))[0].isfinite()
    assert task.keep(tmp_path, {}) == "this task has no features to embed by"
    assert task.summary() == {}
    assert task.device.type == "cpu"
    task.pictures(tmp_path)
    task.advance(1)
    assert not list(tmp_path.iterdir())
    assert isinstance(task.measures(), dict)


def test_a_run_of_objects_is_described_by_its_settings_and_in_words():
    task = Classification(Net(), call(ArcFace, m=0.2), Squares(20))
    said = describe(task, Settings(steps=3, optimizer=torch.optim.SGD))
    assert said["settings"]["steps"] == 3
    assert said["settings"]["optimizer"]["call"] == "SGD"
    assert said["settings"]["schedule"]["call"] == "StepRate"
    assert said["task"] == {
        **{"class": "Classification", "model": "Headed", "training samples": 20, "classes": 5},
        **{"measured samples": "the training samples", "features": 6, "network": "Net", "head": "ArcFace"},
    }


@pytest.mark.parametrize("dim", [2, 3])
def test_draws_a_file_and_leaves_nothing_open(dim: int, tmp_path: pathlib.Path) -> None:
    features, labels = torch.randn(30, dim), torch.arange(30) % 3
    draw(tmp_path / "x.png", plots.plot_features, features, labels, projection="3d" if dim == 3 else None)
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    assert plt.get_fignums() == []
