import math
import pathlib

import matplotlib.pyplot as plt
import pytest
import torch
from torch import nn

import hypersphere as hs
from hypersphere import plots
from hypersphere.config import call
from hypersphere.models import ConvNet
from hypersphere.models.blocks import Conv
from hypersphere.objectives import ArcFace
from hypersphere.training import Classification, Settings, Task
from hypersphere.training.tasks.task import compute_layer_energies, draw, get_annealing_value, measure_features
from hypersphere.training.trainer import describe
from tests.training.own import Net, Squares


class Minimal(Task):
    """A user's task: a regression with its error as the only metric."""

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
    assert task.write_embedder(tmp_path, {}) == "this task has no features that an embedder could return"
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


def test_energies_of_layers_and_of_the_classes() -> None:
    net = ConvNet([Conv(4), Conv(1)], 3, input_size=4, fc=[2], classifier=hs.SphereFace)
    energies = compute_layer_energies(net)
    head = net.classifier.weight
    unit = head / head.norm(dim=1, keepdim=True)
    pairs = [(unit[i] - unit[j]).square().sum().reciprocal().item() for i in range(3) for j in range(3) if i != j]
    assert energies["energy/classifier"] == pytest.approx(sum(pairs) / 6, rel=1e-5)
    assert [key for key in energies if "conv2" in key] == []  # a single neuron has no energy
    assert len(energies) == 3


def test_angles_of_orthogonal_classes() -> None:
    features = torch.tensor([[2.0, 0.0], [4.0, 0.0], [0.0, 2.0], [0.0, 4.0]])
    values = measure_features(features, torch.tensor([0, 0, 1, 1]))
    assert values["intra_angle"] == pytest.approx(0, abs=1e-3)
    assert values["inter_angle"] == pytest.approx(math.pi / 2, abs=1e-6)
    assert values["nearest_angle"] == pytest.approx(math.pi / 2, abs=1e-6)
    assert values["feature_norm"] == 3.0
    assert values["feature_norm_std"] == pytest.approx(math.sqrt(4 / 3))


def test_one_dimension_or_one_class_has_no_angles() -> None:
    assert measure_features(torch.ones(4, 1), torch.tensor([0, 0, 1, 1])).keys() == {"feature_norm", "feature_norm_std"}
    assert measure_features(torch.ones(4, 2), torch.zeros(4, dtype=torch.long)).keys() == {
        "feature_norm",
        "feature_norm_std",
    }


def test_lambda_is_the_heads_own() -> None:
    head = hs.SphereFace(2, 3, annealing=hs.Annealing(start=10, floor=1, rate=1, power=1))
    head.step()
    assert get_annealing_value(head) == {"lambda": 5.0}
    assert get_annealing_value(hs.Softmax(2, 3)) == {}
