import pytest
import torch

from hypersphere import models
from hypersphere.config import call
from hypersphere.data import InMemory
from hypersphere.evaluation import few_shot
from hypersphere.training import Config, FewShotRecognition, build_task, replace
from tests.training.contracts import TaskContract

CONFIG = Config(
    task=call(
        FewShotRecognition,
        **{"ways": 3, "shots": 2, "queries": 5, "episodes": 5, "epochs": 3},
        **{"train_classes": 7, "validation_classes": 0, "test_classes": 3},
    ),
    size=16,
    batch_size=32,
    backbone=call(models.cnn4, width=0.1),
)


class TestFewShot(TaskContract):
    config = CONFIG


def parts(config):
    task = build_task(config)
    return tuple(task.train_samples.classes), tuple(task.measured_samples.classes)


def test_classes_are_disjoint():
    assert parts(CONFIG) == (tuple("0123456"), tuple("789"))
    held = replace(CONFIG, {"samples.validation": 0.1, "task.train_classes": 5, "task.validation_classes": 2})
    assert parts(held)[1] == ("5", "6")
    assert parts(replace(held, {"samples.validation": 0.0}))[1] == tuple("789")


def divided(background: bool = True) -> InMemory:
    """Return a dataset whose two parts share no class, as in Omniglot."""
    names = [f"{'train' if background else 'test'} {i}" for i in range(6)]
    images = (torch.arange(12 * 64).reshape(12, 1, 8, 8) % 251).to(torch.uint8)
    return InMemory(images, torch.arange(12) % 6, names)


def test_a_dataset_with_its_own_division_keeps_it():
    config = replace(CONFIG, {"task.validation_classes": 2}, data=call(divided))
    train, test = parts(config)
    assert train == ("train 0", "train 1", "train 2", "train 3")
    assert test == tuple(f"test {i}" for i in range(6))
    assert parts(replace(config, {"samples.validation": 0.5}))[1] == ("train 4", "train 5")


def test_each_method_is_that_of_the_evaluation():
    task = build_task(CONFIG).eval()
    with torch.no_grad():
        found, features = task.evaluate(), task.embed(task.measured_samples)
    for name, method in (("accuracy", "centroid"), ("baseline", "baseline"), ("baseline++", "baseline++")):
        report = few_shot(features, task.measured_samples.labels, 3, 2, 5, method=method, episodes=5, epochs=3)
        assert found[name] == pytest.approx(100 * float(report.accuracy))
    assert found["accuracy_interval"] > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task.train_classes": 9}, r"must leave 2 classes to train and sum to at most 10, got 9, 0, 3"),
        ({"task.shots": 0}, "ways, shots, queries, episodes and epochs must be integers ≥ 1"),
    ],
)
def test_refuses(changes, message):
    with pytest.raises(ValueError, match=message):
        build_task(replace(CONFIG, **changes))
