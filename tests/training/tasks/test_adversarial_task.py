import pytest
import torch
from torch.nn import functional as F

from hypersphere import models
from hypersphere.config import call
from hypersphere.evaluation import fgsm
from hypersphere.objectives import AMSoftmax
from hypersphere.training import Adversarial, Config, build_task, replace
from hypersphere.training.tasks.adversarial_task import Body
from tests.training.contracts import TaskContract

CONFIG = Config(
    task=call(Adversarial, iterations=2, attacked_images=40),
    batch_size=32,
    normalize="unit",
    backbone=call(models.cnn3, table="E.3", width=0.1, feature_dim=8, norm="none"),
)


class TestAdversarial(TaskContract):
    config = CONFIG


def objective(task, images, labels):
    return task.objectives(images, labels)["objective"]


def test_the_loss_is_half_that_of_the_images_and_half_that_of_the_attacked():
    task = build_task(CONFIG).train()
    images, labels = next(iter(task.loader))
    attacked = fgsm(task.model, images, labels)
    expected = 0.5 * F.cross_entropy(task.model(images), labels) + 0.5 * F.cross_entropy(task.model(attacked), labels)
    torch.testing.assert_close(objective(task, images, labels), expected)
    natural = build_task(replace(CONFIG, {"task.attacked": 0.0})).train()
    natural.load_state_dict(task.state_dict())
    torch.testing.assert_close(objective(natural, images, labels), F.cross_entropy(task.model(images), labels))


def test_a_margin_is_attacked_as_well():
    task = build_task(replace(CONFIG, head=call(AMSoftmax))).train()
    images, labels = next(iter(task.loader))
    head, features = task.model.classifier, task.model.features
    attacked = fgsm(Body(task.model), images, labels, loss=head)
    expected = 0.5 * head(features(images), labels) + 0.5 * head(features(attacked), labels)
    torch.testing.assert_close(objective(task, images, labels), expected)


def test_attacks_do_harm():
    attack = call(Adversarial, epsilon=0.5, step=0.2, iterations=3, attacked_images=40)
    task = build_task(replace(CONFIG, task=attack, backbone=call(models.mlp, width=0.2)))
    optimizer = torch.optim.Adam(task.parameters(), 0.01)
    for images, labels in task.loader:
        optimizer.zero_grad()
        F.cross_entropy(task.model(images), labels).backward()
        optimizer.step()
    with torch.no_grad():
        found = task.eval().evaluate()
    assert found["unattacked_accuracy"] > 70
    assert max(found["bim_accuracy"], found["pgd_accuracy"], found["fgsm_accuracy"]) < found["unattacked_accuracy"] - 20


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"normalize": "deviation"},
            r"inputs must lie in \[0, 1\] for attacks of size ε: set normalize=unit",
        ),
        ({"task.epsilon": 0.0}, r"epsilon and step must lie in \(0, 1\], attacked in \[0, 1\], got 0.0"),
        ({"task.iterations": 0}, "iterations and attacked_images must be ≥ 1, got 0"),
    ],
)
def test_refuses(changes, message):
    with pytest.raises(ValueError, match=message):
        build_task(replace(CONFIG, **changes))
