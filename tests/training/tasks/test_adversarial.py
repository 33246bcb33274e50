import pytest
import torch
from hypersphere.training.protocols import Attack
from torch.nn import functional as F

from hypersphere.evaluation import fgsm
from hypersphere.training.config import Config, Data, Head, Model, replace
from hypersphere.training.tasks import build_task
from hypersphere.training.tasks.adversarial import Body
from tests.training.contracts import TaskContract

CONFIG = Config(
    task="adversarial",
    data=Data("Digits", batch_size=32, normalize="unit"),
    model=Model("cnn3", width=0.1, feature_dim=8, norm="none"),
    attack=Attack(iterations=2, images=40),
)


class TestAdversarial(TaskContract):
    config = CONFIG


def test_the_loss_is_half_that_of_the_images_and_half_that_of_the_attacked():
    task = build_task(CONFIG).train()
    images, labels = next(iter(task.loader))
    attacked = fgsm(task.model, images, labels)
    expected = 0.5 * F.cross_entropy(task.model(images), labels) + 0.5 * F.cross_entropy(task.model(attacked), labels)
    torch.testing.assert_close(task.objective(images, labels), expected)
    natural = build_task(replace(CONFIG, attack__weight=0.0)).train()
    natural.load_state_dict(task.state_dict())
    torch.testing.assert_close(natural.objective(images, labels), F.cross_entropy(task.model(images), labels))


def test_a_margin_is_attacked_as_well():
    task = build_task(replace(CONFIG, head=Head("AMSoftmax"))).train()
    images, labels = next(iter(task.loader))
    head, features = task.model.classifier, task.model.features
    attacked = fgsm(Body(task.model), images, labels, loss=head)
    torch.testing.assert_close(
        task.objective(images, labels), 0.5 * head(features(images), labels) + 0.5 * head(features(attacked), labels)
    )


def test_attacks_do_harm():
    perceptron = replace(
        CONFIG, model=Model("mlp", width=0.2), attack=Attack(epsilon=0.5, step=0.2, iterations=3, images=40)
    )
    task = build_task(perceptron)
    optimizer = torch.optim.Adam(task.parameters(), 0.01)
    for images, labels in task.loader:
        optimizer.zero_grad()
        F.cross_entropy(task.model(images), labels).backward()
        optimizer.step()
    with torch.no_grad():
        found = task.eval().evaluate()
    assert found["unattacked_accuracy"] > 70
    assert max(found["bim_accuracy"], found["pgd_accuracy"], found["fgsm_accuracy"]) < found["unattacked_accuracy"] - 20


def test_refuses_pixels_outside_0_to_1():
    with pytest.raises(ValueError, match=r"data.normalize must be unit for the task adversarial.*got deviation"):
        build_task(replace(CONFIG, data__normalize="deviation"))
