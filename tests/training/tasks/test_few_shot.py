import pytest
import torch
from hypersphere.training.protocols import FewShot

from hypersphere.data import InMemory
from hypersphere.evaluation import few_shot
from hypersphere.training import datasets
from hypersphere.training.config import Config, Data, Model, replace
from hypersphere.training.tasks import build_task
from hypersphere.training.tasks.few_shot import divided
from tests.training.contracts import TaskContract

CONFIG = Config(
    task="few_shot",
    data=Data("Digits", size=16, batch_size=32),
    model=Model("cnn4", width=0.1),
    few_shot=FewShot(
        ways=3, shots=2, queries=5, episodes=5, epochs=3, train_classes=7, validation_classes=0, test_classes=3
    ),
)


class TestFewShot(TaskContract):
    config = CONFIG


def parts(config):
    return divided(config.data, config.few_shot)


def test_classes_are_disjoint():
    train, test = parts(CONFIG)
    assert train.classes == tuple("0123456")
    assert test.classes == tuple("789")
    held = replace(CONFIG, data__validation=0.1, few_shot__train_classes=5, few_shot__validation_classes=2)
    assert parts(held)[1].classes == ("5", "6")
    assert parts(replace(held, data__validation=0.0))[1].classes == tuple("789")


def test_a_dataset_with_its_own_division_keeps_it(monkeypatch):
    def reader(train, _):
        names = [f"{'train' if train else 'test'} {i}" for i in range(6)]
        return InMemory(torch.zeros(12, 1, 8, 8, dtype=torch.uint8), torch.arange(12) % 6, names)

    monkeypatch.setitem(datasets.READERS, "Omniglot", reader)
    config = replace(CONFIG, data__name="Omniglot", few_shot__validation_classes=2)
    train, test = parts(config)
    assert train.classes == ("train 0", "train 1", "train 2", "train 3")
    assert test.classes == tuple(f"test {i}" for i in range(6))
    assert parts(replace(config, data__validation=0.5))[1].classes == ("train 4", "train 5")


def test_each_method_is_that_of_the_evaluation():
    task = build_task(CONFIG).eval()
    with torch.no_grad():
        found, features = task.evaluate(), task.embed(task.measured)
    for name, method in (("accuracy", "centroid"), ("baseline", "baseline"), ("baseline++", "baseline++")):
        report = few_shot(features, task.measured.labels, 3, 2, 5, method=method, episodes=5, epochs=3)
        assert found[name] == pytest.approx(100 * float(report.accuracy))
    assert found["accuracy_interval"] > 0


def test_refuses_more_classes_than_there_are():
    with pytest.raises(ValueError, match=r"must leave 2 classes to train and sum to at most 10, got 9, 0, 3"):
        build_task(replace(CONFIG, few_shot__train_classes=9))
