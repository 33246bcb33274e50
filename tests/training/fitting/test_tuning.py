import pytest
import torch

from hypersphere.config import call
from hypersphere.data import InMemory
from hypersphere.geometry import normalize
from hypersphere.models import GE2E
from hypersphere.objectives import CosFace
from hypersphere.training import Recognition
from hypersphere.training.fitting.tuning import imprint_head, tune_network


def make_task(body=None):
    torch.manual_seed(0)
    labels = torch.arange(24) % 4
    data = InMemory(torch.randn(24, 3, 8, 8) + labels[:, None, None, None], labels, tuple("abcd"))
    layers = (
        torch.nn.Conv2d(3, 8, 3),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 8, 3),
        torch.nn.Flatten(),
        torch.nn.Linear(128, 16),
    )
    body = torch.nn.Sequential(*layers) if body is None else body
    return Recognition(body, call(CosFace), data, data, batch_size=8)


def embed(task):
    return task.eval().embed(task.train_samples)


def learning(task):
    return {name for name, p in task.model.named_parameters() if p.requires_grad}


def train(task, steps=3):
    optimizer = torch.optim.SGD([p for p in task.parameters() if p.requires_grad], lr=0.1)
    for step in range(steps):
        task.train()
        optimizer.zero_grad()
        task(step, *next(iter(task.loader)))[0].backward()
        optimizer.step()


def test_the_frozen_network_gives_the_same_features_after_training():
    task = make_task()
    tune_network(task, "frozen")
    before = embed(task)
    train(task)
    assert learning(task) == {"classifier.weight"}
    assert torch.equal(embed(task), before)


def test_only_the_last_layers_learn():
    task = make_task()
    tune_network(task, "last")
    assert learning(task) == {f"body.{name}" for name in ("3.weight", "3.bias", "5.weight", "5.bias")} | {
        "classifier.weight"
    }


def test_rotations_keep_the_angles_between_neurons():
    task = make_task()
    first = task.model.body[3].weight.detach().flatten(1).clone()
    before = embed(task)
    tune_network(task, "oft")
    torch.testing.assert_close(embed(task), before)
    train(task)
    after = task.model.body[3].weight.detach().flatten(1)
    assert not torch.allclose(after, first, atol=1e-4)
    torch.testing.assert_close(normalize(after) @ normalize(after).T, normalize(first) @ normalize(first).T)


def test_everything_learns_but_the_statistics_of_batches():
    task = make_task()
    tune_network(task, "full")
    norm = task.model.body[1]
    mean = norm.running_mean.clone()
    train(task)
    assert len(learning(task)) == len(list(task.model.named_parameters()))
    assert torch.equal(norm.running_mean, mean)


def test_recurrent_layers_have_no_rotations_and_no_warning():
    labels = torch.arange(8) % 2
    data = InMemory(torch.rand(8, 6, 12), labels, ("a", "b"))
    body = GE2E(bands=6, hidden=8, layers=1, feature_dim=8)
    task = Recognition(body, call(CosFace), data, data, batch_size=4)
    tune_network(task, "oft")
    assert not any("lstm" in name for name in learning(task))


@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_classes_start_from_the_mean_direction_of_their_samples(scale):
    task = make_task()
    with torch.no_grad():
        task.model.classifier.weight.mul_(scale)
    lengths = task.model.classifier.weight.norm(dim=1).clone()
    imprint_head(task, task.train_samples)
    features = normalize(embed(task))
    wanted = torch.stack([normalize(features[task.train_samples.labels == k].mean(0), dim=0) for k in range(4)])
    weight = task.model.classifier.weight.detach()
    torch.testing.assert_close(normalize(weight), wanted, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(weight.norm(dim=1), lengths)
